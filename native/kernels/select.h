// Selection of the n_bits values of largest magnitude in a row of projections.
//
// Magnitudes of floats order like their bit patterns without the sign bit, so selection works on integers.
// A sample gives a floor that most likely lies a little below the threshold; the few candidates above the
// floor are gathered in row order, and a bisection over their bit patterns finds the threshold. The result
// does not depend on the sample: when it misjudges, every row becomes a candidate.
#pragma once

#include <cmath>

#include "../core/lanes.h"
#include "../core/ones.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

constexpr int32_t kMagnitude = INT32_MAX;  // all bits except the sign

inline int32_t magnitude_bits(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits & kMagnitude;
}

struct Candidates {
    explicit Candidates(int64_t n_pool)
        : magnitudes(n_pool + kSpare), rows(n_pool + kSpare), sample(n_pool / 8 + kSpare) {}
    static constexpr int64_t kSpare = 32;
    std::vector<int32_t> magnitudes, rows, sample;
    int64_t count = 0;
};

// Writes the rows whose magnitude is above the threshold, and the first `ties` of those that equal it.
// Without branches, because half of them would be mispredicted.
inline void keep_tied(Candidates& from, int32_t threshold, int64_t ties, int64_t n_bits, int32_t* locations) {
    int64_t kept = 0;
    for (int64_t i = 0; i < from.count; ++i) {
        const bool tied = from.magnitudes[i] == threshold;
        const bool taken = (from.magnitudes[i] > threshold) | (tied & (ties > 0));
        ties -= tied;
        from.rows[kept] = from.rows[i];
        kept += taken;
    }
    std::copy_n(from.rows.begin(), n_bits, locations);
}

// Writes the n_bits rows whose magnitude reaches the threshold.
template <class Isa>
void keep(Candidates& from, int32_t least, int64_t n_bits, int32_t* locations) {
    int64_t kept = 0;
    for (int64_t i = 0; i < from.count; i += Isa::kCompressed)
        kept += Isa::compress_rows(&from.magnitudes[i], &from.rows[i], least, &from.rows[kept]);
    std::copy_n(from.rows.begin(), n_bits, locations);
}

// Packs the signs of the rows kept, and sums their magnitudes.
inline double sum_kept_rows(const float* y, const int32_t* rows, int64_t n_bits, uint8_t* signs) {
    LaneSum sum;
    for (int64_t j = 0; j < n_bits; j += LaneSum::kLanes) {
        const int n = int(std::min<int64_t>(LaneSum::kLanes, n_bits - j));
        float values[LaneSum::kLanes] = {};
        for (int lane = 0; lane < n; ++lane) values[lane] = y[rows[j + lane]];
        uint32_t bits = 0;
        for (int lane = 0; lane < LaneSum::kLanes; ++lane) {
            sum.lane[lane] += std::fabs(double(values[lane]));
            bits |= uint32_t(values[lane] >= 0) << lane;  // -0 counts as positive
        }
        bits &= (uint32_t(1) << n) - 1;
        for (int64_t byte = j / 8; byte < ceil_div(j + n, 8); ++byte, bits >>= 8) signs[byte] = uint8_t(bits);
    }
    return sum.total();
}

template <class Isa>
using Ints = Vec<int32_t, Isa::kBytes / 4>;

// Arrays are padded with one register of -1, which is below all magnitudes.
template <class Isa>
int64_t count_at_least(const int32_t* magnitudes, int64_t n, int32_t threshold) {
    using V = Ints<Isa>;
    const V below = splat<V>(threshold - 1);
    V counts{};
    for (int64_t i = 0; i < n; i += kLanes<V>) counts = counts - (load<V>(magnitudes + i) > below);
    int64_t sum = 0;
    for (int lane = 0; lane < kLanes<V>; ++lane) sum += counts[lane];
    return sum;
}

template <class Isa>
int32_t largest(const int32_t* magnitudes, int64_t n) {
    using V = Ints<Isa>;
    V top{};
    for (int64_t i = 0; i < n; i += kLanes<V>) top = max_of(top, load<V>(magnitudes + i));
    int32_t most = 0;
    for (int lane = 0; lane < kLanes<V>; ++lane) most = std::max<int32_t>(most, top[lane]);
    return most;
}

struct Threshold {
    int32_t value;
    int64_t at_least;  // number of magnitudes that reach it, at least the number requested
};

// The highest threshold that `wanted` magnitudes reach, or any that exactly `wanted` reach.
template <class Isa>
Threshold bisect(const int32_t* magnitudes, int64_t n, int64_t wanted, int32_t floor) {
    int64_t low = floor, high = int64_t(largest<Isa>(magnitudes, n)) + 1, reached = n;
    while (reached != wanted && high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t count = count_at_least<Isa>(magnitudes, n, int32_t(middle));
        if (count >= wanted) {
            low = middle;
            reached = count;
        } else {
            high = middle;
        }
    }
    return {int32_t(low), reached};
}

// A magnitude that most likely lies below the threshold with few rows in between; 0 if unsure.
template <class Isa>
int32_t guess_floor(const float* y, int64_t n_pool, int64_t n_bits, Candidates& work) {
    using V = Ints<Isa>;
    constexpr int64_t kSampled = std::max<int64_t>(8, kLanes<V>);  // one sixteenth of the values
    if (n_pool < 2048) return 0;
    int64_t n = 0;
    for (int64_t i = 0; i + kSampled <= n_pool; i += 16 * kSampled)
        for (int64_t j = 0; j < kSampled; j += kLanes<V>, n += kLanes<V>)
            store(&work.sample[n], load<V>(y + i + j) & splat<V>(kMagnitude));
    const double expected = double(n_bits) * double(n) / double(n_pool);
    const int64_t rank = int64_t(expected + 4 * std::sqrt(expected) + 4);
    return rank < n ? bisect<Isa>(work.sample.data(), n, rank, 0).value : 0;
}

template <class Isa>
void gather_candidates(const float* y, int64_t n_pool, int32_t floor, Candidates& work) {
    int64_t n = 0, i = 0;
    for (; i + Isa::kCompressed <= n_pool; i += Isa::kCompressed)
        n += Isa::compress(y + i, int32_t(i), floor, &work.magnitudes[n], &work.rows[n]);
    for (; i < n_pool; ++i)
        if (magnitude_bits(y[i]) >= floor) {
            work.magnitudes[n] = magnitude_bits(y[i]);
            work.rows[n++] = int32_t(i);
        }
    work.count = n;
    store(&work.magnitudes[n], splat<Ints<Isa>>(-1));
}

template <class Isa>
void locate(const float* y, int64_t n_pool, int64_t n_bits, Candidates& work, int32_t* locations) {
    int32_t floor = guess_floor<Isa>(y, n_pool, n_bits, work);
    gather_candidates<Isa>(y, n_pool, floor, work);
    if (work.count < n_bits) {
        floor = 0;
        gather_candidates<Isa>(y, n_pool, floor, work);
    }
    const Threshold threshold = bisect<Isa>(work.magnitudes.data(), work.count, n_bits, floor);
    if (threshold.at_least == n_bits) {
        keep<Isa>(work, threshold.value, n_bits, locations);
    } else {
        const int64_t above = count_at_least<Isa>(work.magnitudes.data(), work.count, threshold.value + 1);
        keep_tied(work, threshold.value, n_bits - above, n_bits, locations);
    }
}

template <class Isa>
void select_rows(int n_threads, const ts_selection& asked) {
    const int64_t n_pool = asked.projected.width, n_bits = asked.n_bits, bytes = ceil_div(n_bits, 8);
    parallel_for(n_threads, asked.projected.count, double(n_pool), [&](int64_t begin, int64_t end) {
        Candidates work(n_pool);
        for (int64_t i = begin; i < end; ++i) {
            const float* y = asked.projected.values + i * n_pool;
            int32_t* rows = asked.locations + i * n_bits;
            locate<Isa>(y, n_pool, n_bits, work, rows);
            asked.totals[i] = sum_kept_rows(y, rows, n_bits, asked.signs + i * bytes);
        }
    });
}

}  // namespace
}  // namespace topsign
