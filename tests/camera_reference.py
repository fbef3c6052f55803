"""Plain reference implementation of the steps from photographs to evidence; imports nothing from the package."""

import warnings

import numpy as np
import pywt


def local_mean(values, window, wrap):
    """Mean over a square window around each value; edges are mirrored, or wrapped around."""
    reach = window // 2
    padded = np.pad(values, reach, mode="wrap" if wrap else "symmetric")
    result = np.empty(values.shape)
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            result[row, column] = padded[row : row + window, column : column + window].mean()
    return result


def wiener_share(values, variance, wrap=False):
    """Wiener gain of each value: v / (v + variance), where v is the smallest local variance above the noise."""
    estimates = [np.maximum(local_mean(values**2, window, wrap) - variance, 0) for window in (3, 5, 7, 9)]
    signal = np.min(estimates, axis=0)
    return signal / (signal + variance)


def denoise(channel, sigma=3.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small images allow fewer levels without edge effects
        coefficients = pywt.wavedec2(channel, "db8", level=4, mode="periodization")
    for level in range(1, 5):
        coefficients[level] = tuple(band * wiener_share(band, sigma**2) for band in coefficients[level])
    return pywt.waverec2(coefficients, "db8", mode="periodization")


def remove_linear_pattern(noise):
    result = np.array(noise, float)
    for row in (0, 1):
        for column in (0, 1):
            grid = result[row::2, column::2]
            for at in range(grid.shape[1]):
                grid[:, at] -= grid[:, at].mean()
            for at in range(grid.shape[0]):
                grid[at] -= grid[at].mean()
    return result


def filter_spectrum(noise):
    spectrum = np.fft.fft2(noise)
    magnitudes = np.abs(spectrum) / np.sqrt(noise.size)
    return np.fft.ifft2(spectrum * (1 - wiener_share(magnitudes, noise.var(), wrap=True))).real


def residual(pixels):
    """Residual and weighted intensity of an image (height, width, 3)."""
    shares = (0.299, 0.587, 0.114)
    noise = sum(share * (pixels[:, :, at] - denoise(pixels[:, :, at])) for at, share in enumerate(shares))
    intensity = sum(share * pixels[:, :, at] for at, share in enumerate(shares))
    brightest = pixels.max(axis=2)
    variance = local_mean(brightest**2, 3, False) - local_mean(brightest, 3, False) ** 2
    lost = (brightest >= 250) | ((brightest < 10) & (variance < 0.25))
    return filter_spectrum(remove_linear_pattern(noise)), np.where(lost, 0, intensity)


def fingerprint(residuals):
    """sum(W I) / sum(I**2) over photographs, pixel by pixel, then cleaned."""
    (height, width), result = residuals[0][0].shape, np.zeros(residuals[0][0].shape)
    for row in range(height):
        for column in range(width):
            above = sum(noise[row, column] * intensity[row, column] for noise, intensity in residuals)
            below = sum(intensity[row, column] ** 2 for _, intensity in residuals)
            result[row, column] = above / below if below >= 1 else 0
    return filter_spectrum(remove_linear_pattern(result))


def peak_to_correlation_energy(noise, pattern):
    first, second = noise - noise.mean(), pattern - pattern.mean()
    height, width = first.shape
    peak, energy, count = (first * second).sum(), 0.0, 0
    for row in range(height):
        for column in range(width):
            near = min(row, height - row) <= 5 and min(column, width - column) <= 5
            if not near:
                energy += (np.roll(second, (row, column), (0, 1)) * first).sum() ** 2
                count += 1
    return np.sign(peak) * peak**2 / (energy / count)


def likelihood_ratios(matches, impostors):
    """Decimal logarithms of bounded likelihood ratios by known score, by the definitions."""
    n, m = len(matches) + 1, len(impostors) + 1  # one misleading score of each kind is added
    scores = sorted({*matches, *impostors})
    blocks = [[1, 0, []]]  # matches, impostors, scores
    for score in scores:
        blocks.append([list(matches).count(score), list(impostors).count(score), [score]])
    blocks.append([0, 1, []])
    at = 0
    while at < len(blocks) - 1:  # pool adjacent violators: shares of matches must rise
        first, second = blocks[at : at + 2]
        if first[0] / (first[0] + first[1]) >= second[0] / (second[0] + second[1]):
            blocks[at : at + 2] = [[first[0] + second[0], first[1] + second[1], first[2] + second[2]]]
            at = max(0, at - 1)
        else:
            at += 1
    ratios = {score: np.log10((a / n) / (b / m)) for a, b, inside in blocks for score in inside}

    def cost(threshold):
        missed = (1 + sum(ratios[one] <= threshold for one in matches)) / n
        return missed + 10**threshold * (1 + sum(ratios[one] > threshold for one in impostors)) / m

    least = min(0, int(np.floor(100 * max(-np.log10(n), min(ratios.values())))))
    most = max(0, int(np.ceil(100 * min(np.log10(m), max(ratios.values())))))
    worse = [at for at in range(least, most + 1) if cost(at / 100) > min(1, 10 ** (at / 100))]
    low = min(0, max([at + 1 for at in worse if at <= 0], default=least)) / 100
    high = max(0, min([at - 1 for at in worse if at >= 0], default=most)) / 100
    return {score: min(max(ratio, low), high) for score, ratio in ratios.items()}


def best_shift(query, fingerprint):
    """Best shift of a crop in a frame whose sides are multiples of 8, and its PCE among shifts of equal remainder."""
    first, second = query - query.mean(), fingerprint - fingerprint.mean()
    height, width = fingerprint.shape
    values = np.zeros(fingerprint.shape)
    for row in range(height):
        for column in range(width):
            below = np.roll(second, (-row, -column), (0, 1))[: len(query), : query.shape[1]]
            values[row, column] = (first * below).sum() / np.sqrt((first**2 * below**2).sum())
    classes = [[values[row::8, column::8] for column in range(8)] for row in range(8)]
    scaled = {
        (row, column): values[row, column] / np.sqrt((classes[row % 8][column % 8] ** 2).mean())
        for row in range(height - len(query) + 1)
        for column in range(width - query.shape[1] + 1)
    }
    top, left = max(scaled, key=scaled.get)
    others = [
        values[row, column] ** 2
        for row in range(top % 8, height, 8)
        for column in range(left % 8, width, 8)
        if (row, column) != (top, left)
    ]
    return top, left, values[top, left] ** 2 / np.mean(others)
