"""Reference implementation: slow and plain definitions, which import nothing from the package."""

import hashlib
import math

import numpy as np

MASK = 2**64 - 1


# Random streams


def philox_words(seed, name, index, count):
    """Philox4x64-10 with key (seed, hash of name) and counter (1, index, 0, 0), (2, index, 0, 0), ..."""
    words = []
    for step in range(1, -(-count // 4) + 1):
        c = [step, index, 0, 0]
        k = [seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")]
        for _ in range(10):
            p0, p1 = c[0] * 0xD2E7470EE14C6C93, c[2] * 0xCA5A826395121157
            c = [(p1 >> 64) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 64) ^ c[3] ^ k[1], p0 & MASK]
            k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
        words.extend(c)
    return words[:count]


def random_signs(seed, name, index, count):
    """Bit i of the stream: 1 is +1, 0 is -1."""
    words = philox_words(seed, name, index, -(-count // 64))
    return [1 if words[i // 64] >> (i % 64) & 1 else -1 for i in range(count)]


def random_subset(seed, name, index, size, of):
    words = philox_words(seed, name, index, of)
    return sorted(sorted(range(of), key=lambda i: (words[i], i))[:size])


# The randomised Hadamard projection


def hadamard(signal, seed, rounds, n_pool):
    """Projections by consecutive blocks of the rotation, with a random subset of the last block."""
    n = len(signal)
    n_blocks = -(-n_pool // n)
    projected = []
    for block in range(n_blocks):
        signs = [random_signs(seed, "hadamard", block * rounds + r, n) for r in range(rounds)]
        rotated = rotate(signal, signs)
        size = min(n, n_pool - block * n)
        kept = range(n) if size == n else random_subset(seed, "hadamard rows", block, size, n)
        projected.extend(rotated[i] for i in kept)
    return np.array(projected, np.float32)


def rotate(signal, signs):
    f = np.float32
    x = [f(value) for value in signal]
    n = len(x)
    p = 2 ** int(math.log2(n))
    for r, round_signs in enumerate(signs):
        if p == n and r > 0:
            x = [a * f(1 / math.sqrt(n)) for a in x]
        x = [a if sign > 0 else -a for a, sign in zip(x, round_signs, strict=True)]
        start = n - p if r % 2 else 0
        x[start : start + p] = walsh_hadamard(x[start : start + p])
        if p < n:
            x[start : start + p] = [a * f(1 / math.sqrt(p)) for a in x[start : start + p]]
            half = n // 2
            low, high = x[:half], x[n - half :]
            x[:half] = [(a + b) * f(math.sqrt(0.5)) for a, b in zip(low, high, strict=True)]
            x[n - half :] = [(a - b) * f(math.sqrt(0.5)) for a, b in zip(low, high, strict=True)]
    return x if p == n else [a * f(math.sqrt(n)) for a in x]


def walsh_hadamard(x):
    """Pairs at distance 1 first, then 2, 4, ..."""
    x = list(x)
    h = 1
    while h < len(x):
        for i in range(len(x)):
            if not i & h:
                x[i], x[i + h] = x[i] + x[i + h], x[i] - x[i + h]
        h *= 2
    return x


# Selection and sums


def select_locations(projected, n_bits):
    """Rows of the n_bits largest magnitudes, ascending; ties are resolved in favour of the lower row."""
    by_magnitude = sorted(range(len(projected)), key=lambda row: (-abs(float(projected[row])), row))
    return sorted(by_magnitude[:n_bits])


def lane_sum(terms):
    """Sum in double precision: term i to lane i mod 16, lanes folded in half."""
    lanes = [0.0] * 16
    for i, term in enumerate(terms):
        lanes[i % 16] += float(term)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [a + b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def square_norm(signal):
    return lane_sum(float(value) ** 2 for value in signal)


def inner_product(row, vector):
    return lane_sum(float(a) * float(b) for a, b in zip(row, vector, strict=True))


def magnitude_sum(projected):
    return lane_sum(abs(float(value)) for value in projected)


# Bits and codes; a bit is True where the projection is >= 0


def pack(bits):
    """Bit i into byte i // 8, at 1 << i % 8."""
    out = [0] * -(-len(bits) // 8)
    for i, bit in enumerate(bits):
        out[i // 8] |= bool(bit) << i % 8
    return out


def pack_compact(locations, bits, n_pool):
    """Signs, low parts and high parts, each padded to bytes, with the smallest split; ties: longest low part."""
    candidates = []
    for low_bits in range(n_pool.bit_length()):
        lows = [row >> j & 1 for row in locations for j in range(low_bits)]
        size = n_pool if low_bits == 0 else len(locations) + ((n_pool - 1) >> low_bits)
        highs = [0] * size
        for i, row in enumerate(locations):
            highs[(row >> low_bits) + (i if low_bits else 0)] = 1
        candidates.append(pack(bits) + pack(lows) + pack(highs))
    return min(reversed(candidates), key=len)


def mismatches(query_bits, entry_bits, locations):
    return sum(bool(query_bits[row]) != bool(bit) for bit, row in zip(entry_bits, locations, strict=True))


def one_hot(locations, bits, n_pool):
    out = [0] * (2 * n_pool)
    for row, bit in zip(locations, bits, strict=True):
        out[row if bit else n_pool + row] = 1
    return out


def encode_set(locations, n_pool):
    """Arithmetic coding of the set of kept rows, with the exact probability that the next row is kept."""
    low, size, shifts = 0, 2**64 - 1, 0
    kept = set(locations)
    for row in range(n_pool):
        left, rows_left = sum(location >= row for location in locations), n_pool - row
        if left == 0 or left == rows_left:
            break
        split = size // rows_left * left
        low, size = (low, split) if row in kept else (low + split, size - split)
        while size < 2**56:
            low, size, shifts = low * 256, size * 256, shifts + 1
    top = -(-low // 2**56)  # the first multiple of 2**56 in [low, low + size)
    return top.to_bytes(shifts + 1, "big").rstrip(b"\0")


# Search: compare every entry, then sort


def nearest(values, ids, k):
    """The k smallest values with their ids, ties by ascending id; None if there are fewer than k."""
    ordered = sorted(zip(values, ids, strict=True))[:k]
    return ordered + [None] * (k - len(ordered))


def cosine(a, b):
    """Correlation of two signals in double precision."""
    return math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))


# Heads: compare every class


def kept_levels(projected, n_bits):
    """Signs of the n_bits largest projections, zero elsewhere."""
    kept = select_locations(projected, n_bits)
    return [(1 if value >= 0 else -1) if row in kept else 0 for row, value in enumerate(projected)]


def grouped_levels(projected):
    """Sign of the largest projection of each group of eight, zero elsewhere."""
    return [level for start in range(0, len(projected), 8) for level in kept_levels(projected[start : start + 8], 1)]


def sign_levels(projected):
    """Signs of all projections."""
    return kept_levels(projected, len(projected))


def estimated_logit(projected, limit, weight, weight_projected, levels, intercept=0.0):
    """Scale of the weights times the sum of the input's rounded projections with the code's levels, plus intercept."""
    kept = lane_sum(abs(float(value)) for value, level in zip(weight_projected, levels, strict=True) if level)
    if not kept:
        return intercept
    number = 2**15 + round(512 * math.log2(square_norm(weight) / kept))  # the scale is stored in two bytes
    values, step = rounded(projected, limit)
    return float(score(levels, values, step, 0, factor([number % 256, number // 256], "log"))) + intercept


def best_classes(scores, k):
    """The k highest scores and their classes, ties by ascending class."""
    ordered = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
    return ordered, [scores[row] for row in ordered]


def shortlisted(scores, exact, size):
    """The class with the highest exact score among those with the highest estimates."""
    return min(best_classes(scores, size)[0], key=lambda row: (-exact[row], row))


def reflected_axes(axes):
    """Orthonormal matrix: the axes in their order, then their complement by Householder reflections, as columns."""
    rest, turned = axes.T.astype(float), np.eye(axes.shape[1])
    signs = np.ones(axes.shape[1])
    for j in range(len(axes)):
        normal = np.where(np.arange(len(rest)) >= j, rest[:, j], 0)
        signs[j] = -1 if normal[j] >= 0 else 1
        normal[j] -= signs[j] * np.sqrt(normal @ normal)
        reflection = np.eye(len(rest)) - 2 * np.outer(normal, normal) / (normal @ normal)
        rest, turned = reflection @ rest, turned @ reflection
    return turned * signs


def windows(code, n_steps):
    """Bytes of nibbles s - 1 and s of a ring, for each step s; the high nibble of a byte comes first."""
    nibbles = [nibble for byte in code[: n_steps // 2] for nibble in (int(byte) >> 4, int(byte) & 15)]
    return [16 * nibbles[step - 1] + nibbles[step] for step in range(n_steps)]


def ring_book(ring, step):
    """Book of a step, 256 rows of levels."""
    size = int(ring.first[step + 1] - ring.first[step])
    start = int(ring.book_starts[ring.book_of_step[step]])
    return ring.levels[start : start + 256 * size].reshape(256, size)


def ring_levels(ring, code):
    """Levels of one trellis code: each step reads a row of its book."""
    found = windows(code, ring.n_steps)
    return [int(level) for step, window in enumerate(found) for level in ring_book(ring, step)[window]]


def ring_norm(ring, code):
    total = ring.constant
    for step, window in enumerate(windows(code, ring.n_steps)):
        total += ring.squares[step, window]
    return math.sqrt(max(0.0, total))


def ring_encode(ring, coordinates):
    """The cheapest closed path through 16 states, and its factor.

    Its first state is that of the cheapest open path, which begins and ends in the middle of the ring.
    """
    f, costs = np.float32, np.zeros((ring.n_steps, 256), np.float32)
    for step in range(ring.n_steps):
        book, first = ring_book(ring, step).astype(np.int32), int(ring.first[step])
        for c in range(book.shape[1]):
            costs[step] = costs[step] + ring.weights[first + c] * (book[:, c] ** 2).astype(f)
        for c in range(book.shape[1]):
            slope = (f(-2) * ring.weights[first + c]) * (coordinates[first + c] * ring.scales[first + c])
            costs[step] = costs[step] + slope * book[:, c].astype(f)

    def run(first, totals):
        before = {}
        for step in [*range(first, ring.n_steps), *range(first)]:
            paths = totals[:, np.newaxis] + costs[step].reshape(16, 16)
            before[step] = paths.argmin(axis=0)  # of equal costs the lower state
            totals = paths.min(axis=0)
        return totals, before

    middle = ring.n_steps // 2
    totals, before = run(middle, np.zeros(16, f))
    start = int(totals.argmin())
    for step in reversed(range(middle)):
        start = int(before[step][start])
    _, before = run(0, np.where(np.arange(16) == start, f(0), f(1e30)))
    nibbles, state = [0] * ring.n_steps, start
    for step in reversed(range(ring.n_steps)):
        nibbles[step], state = state, int(before[step][state])
    code = [16 * nibbles[at] + nibbles[at + 1] for at in range(0, ring.n_steps, 2)]
    number = min(65535, int(np.rint(ring_norm(ring, code) * 2**14)))
    return [*code, number % 256, number // 256]


def group_nibbles(projected):
    """Location of the largest magnitude of each eight projections, plus 8 if it is not negative."""
    found = []
    for start in range(0, len(projected), 8):
        (location,) = select_locations(projected[start : start + 8], 1)
        found.append(location + 8 * bool(projected[start + location] >= 0))
    return found


def rounded(values, limit):
    """Values over a step of the largest magnitude over the limit, rounded to even; and the step."""
    step = np.float32(max(abs(float(value)) for value in values)) / np.float32(limit) or np.float32(1)
    return [max(-limit, min(limit, round(float(value) / float(step)))) for value in values], step


def factor(code, kind):
    """Factor in the last two bytes of a code."""
    if kind is None:
        return np.float32(1)
    number = int(code[-2]) + 256 * int(code[-1])
    if number == 0:
        return np.float32(0)
    if kind == "cosine":
        return np.float32(2**14) / np.float32(number)
    return np.float32(np.float32(2 ** (number % 512 / 512)) * np.float32(2.0 ** (number // 512 - 64)))


def score(levels, values, scale, constant, factor):
    """Score of a code: an exact sum, then three steps in float32."""
    total = sum(int(level) * int(value) for level, value in zip(levels, values, strict=True))
    return (np.float32(total) * np.float32(scale) + np.float32(constant)) * np.float32(factor)


def trellis_coordinates(levels, values, mean, coded):
    """A reconstruction in its basis, in multiples of 2**-23: coded coordinates, then the norm of all others."""
    n_features = len(mean)
    scale = 2.0**23 / math.sqrt(n_features)
    steps = [float(value) * scale for value in values]
    middle = [float(mean[place]) * scale for place in coded]
    beside = [(float(mean[place]) * scale) ** 2 for place in range(n_features) if place not in set(coded)]
    rows = [round(place + int(level) * step) for level, step, place in zip(levels, steps, middle, strict=True)]
    return [*rows, round(math.sqrt(math.fsum(beside)))]


def trellis_cosine(first, second):
    """Cosine of two reconstructions in integer arithmetic."""
    product = sum(a * b for a, b in zip(first, second, strict=True))
    squares = float(sum(a * a for a in first)) * float(sum(b * b for b in second))
    return product / math.sqrt(squares) if squares else 0.0


def products(signals, columns, factors=None, minus=None):
    """Products of rows in float32: each feature is scaled and shifted, then terms are added in sequence."""
    out = np.zeros((len(signals), len(columns)), np.float32)
    for i, signal in enumerate(signals):
        values = [value if factors is None else value * factors[i] for value in signal]
        values = values if minus is None else [value - less for value, less in zip(values, minus, strict=True)]
        for j, column in enumerate(columns):
            total = np.float32(0)
            for value, weight in zip(values, column, strict=True):
                total = total + value * weight
            out[i, j] = total
    return out


def mean_scores(unit, means, scales, half_norms):
    """Scores of means in bytes, 64 standing for 0, for a unit query rounded to signed bytes; arithmetic in float32."""
    real = np.float32
    peak = max(abs(real(value)) for value in unit)
    step = real(peak / real(127)) if peak > 0 else real(1)
    query = [round(float(real(value) / step)) for value in unit]
    scores = []
    for mean, scale, half_norm in zip(means, scales, half_norms, strict=True):
        total = sum(one * (int(byte) - 64) for one, byte in zip(query, mean, strict=False))
        scores.append(real(total) * (real(scale) * step) - real(half_norm))
    return scores


def choose_regions(fine, coarse, parents, counts, rule):
    """Stratum, best score, contrast and regions of a query by the scores of all means."""
    near = sorted(range(len(coarse)), key=lambda one: (-coarse[one], one))

    def nearest(n_coarse):
        allowed = set(near[:n_coarse])
        return sorted((r for r in range(len(fine)) if parents[r] in allowed), key=lambda one: (-fine[one], one))

    order = nearest(rule.base_coarse)
    best, contrast = fine[order[0]], fine[order[0]] - fine[order[min(16, len(order)) - 1]]
    stratum = sum(edge <= contrast for edge in rule.edges)
    if best < rule.least:
        return len(rule.n_regions) - 1, best, contrast, []
    if not rule.n_regions[stratum]:
        return stratum, best, contrast, []
    n_coarse = max(rule.base_coarse, rule.n_coarse[stratum])
    while True:
        chosen, reached = [], 0
        for region in nearest(n_coarse):
            if len(chosen) >= rule.n_regions[stratum] and reached >= rule.n_entries[stratum]:
                break
            chosen.append(region)
            reached += counts[region]
        enough = len(chosen) >= rule.n_regions[stratum] and reached >= rule.n_entries[stratum]
        if enough or n_coarse >= len(coarse):
            return stratum, best, contrast, chosen[:24] + sorted(chosen[24:])
        n_coarse *= 2


def exact_scores(query, signal, minus):
    """Inner product and correlation of a query with a signal, both without ``minus``, in double precision."""
    middle = np.zeros(len(query)) if minus is None else minus.astype(np.float64)
    one, other = query.astype(np.float64) - middle, signal.astype(np.float64) - middle
    inner = lane_sum([float(x * y) for x, y in zip(one, other, strict=True)])
    norms = np.sqrt(lane_sum([float(x * x) for x in other])) * np.sqrt(lane_sum([float(x * x) for x in one]))
    return inner, inner / norms if norms > 0 else 0.0


def least_setting(found, strata, stratum, n_settings, asked):
    """First setting with a sufficiently low risk in a group of strata, and a sufficiently low loss in the stratum.

    ``found`` has the first setting that finds each neighbour of each query, ``strata`` the strata of the queries.
    """
    allowed, groups, group = 0.85 * (1 - asked) + 1e-12, [], []
    for one in range(max(strata) + 1):
        group.append(one)
        if 1 / (sum(other in group for other in strata) + 1) <= allowed / 4:
            groups.append(group)
            group = []
    if group:
        groups[-1:] = [[*groups[-1], *group]] if groups else [group]
    (together,) = (one for one in groups if stratum in one)
    for setting in range(n_settings):
        losses = [sum(one > setting for one in row) / len(row) for row in found]
        merged = [loss for loss, one in zip(losses, strata, strict=True) if one in together]
        own = [loss for loss, one in zip(losses, strata, strict=True) if one == stratum]
        if (sum(merged) + 1) / (len(merged) + 1) <= allowed and sum(own) / len(own) <= allowed:
            return setting
    return None
