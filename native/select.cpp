// The n_bits values largest in magnitude of a row of projections.
//
// Magnitudes of floats order like their bit patterns without the sign bit, so selection works on integers.
// A sample gives a floor that most likely lies a little below the threshold; the few candidates above the
// floor are gathered in row order, and a bisection over their bit patterns finds the threshold. The result
// does not depend on the sample: when it misjudges, every row becomes a candidate.
#include <cmath>

#include "common.h"
#include "ones.h"

namespace topsign {
namespace {

constexpr int32_t kMagnitude = INT32_MAX;  // every bit but the sign

int32_t magnitude(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits & kMagnitude;
}

struct Candidates {
    explicit Candidates(int64_t n_pool) : magnitudes(n_pool + 8), rows(n_pool + 8), sample(n_pool / 16 + 8) {}
    std::vector<int32_t> magnitudes, rows, sample;
    int64_t count = 0;
};

// Writes the rows whose magnitude is above the threshold, and the first `ties` of those that equal it.
// Without branches, because half of them would be mispredicted.
void keep(Candidates& from, int32_t threshold, int64_t ties, int64_t n_bits, int32_t* locations) {
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

void locate_scalar(const float* y, int64_t n_pool, int64_t n_bits, Candidates& work, int32_t* locations) {
    work.count = n_pool;
    for (int64_t i = 0; i < n_pool; ++i) {
        work.magnitudes[i] = magnitude(y[i]);
        work.rows[i] = int32_t(i);
    }
    std::vector<int32_t> ordered(work.magnitudes.begin(), work.magnitudes.begin() + n_pool);
    const auto nth = ordered.begin() + (n_bits - 1);
    std::nth_element(ordered.begin(), nth, ordered.end(), std::greater<int32_t>());
    const int64_t above = std::count_if(ordered.begin(), nth, [&](int32_t v) { return v > *nth; });
    keep(work, *nth, n_bits - above, n_bits, locations);
}

#if TOPSIGN_X86
TOPSIGN_AVX2_INLINE __m256i compress_order(int mask) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOnesOfByte.place[mask])));
}

TOPSIGN_AVX2_INLINE __m256i load(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

TOPSIGN_AVX2_INLINE void store(int32_t* p, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}

TOPSIGN_AVX2_INLINE int64_t sum_lanes(__m256i v) {
    int32_t lanes[8];
    store(lanes, v);
    int64_t sum = 0;
    for (int32_t lane : lanes) sum += lane;
    return sum;
}

// Both arrays end in eight lanes of -1, below every magnitude.
TOPSIGN_AVX2 int64_t count_at_least(const int32_t* magnitudes, int64_t n, int32_t threshold) {
    const __m256i below = _mm256_set1_epi32(threshold - 1);
    __m256i counts = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 8)
        counts = _mm256_sub_epi32(counts, _mm256_cmpgt_epi32(load(magnitudes + i), below));
    return sum_lanes(counts);
}

TOPSIGN_AVX2 int32_t largest(const int32_t* magnitudes, int64_t n) {
    __m256i top = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 8) top = _mm256_max_epi32(top, load(magnitudes + i));
    int32_t lanes[8];
    store(lanes, top);
    return *std::max_element(lanes, lanes + 8);
}

struct Threshold {
    int32_t value;
    int64_t at_least;  // how many magnitudes reach it, never fewer than asked for
};

// The highest threshold that `wanted` magnitudes reach, or any that exactly `wanted` reach.
TOPSIGN_AVX2 Threshold bisect(const int32_t* magnitudes, int64_t n, int64_t wanted, int32_t floor) {
    int64_t low = floor, high = int64_t(largest(magnitudes, n)) + 1, reached = n;
    while (reached != wanted && high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t count = count_at_least(magnitudes, n, int32_t(middle));
        if (count >= wanted) {
            low = middle;
            reached = count;
        } else {
            high = middle;
        }
    }
    return {int32_t(low), reached};
}

// A magnitude that most likely lies below the threshold with few rows in between; 0 where unsure.
TOPSIGN_AVX2 int32_t guess_floor(const float* y, int64_t n_pool, int64_t n_bits, Candidates& work) {
    if (n_pool < 2048) return 0;
    const __m256i mask = _mm256_set1_epi32(kMagnitude);
    int64_t n = 0;
    for (int64_t i = 0; i + 8 <= n_pool; i += 128, n += 8)
        store(&work.sample[n], _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(y + i)), mask));
    const double expected = double(n_bits) * double(n) / double(n_pool);
    const int64_t rank = int64_t(expected + 4 * std::sqrt(expected) + 4);
    return rank < n ? bisect(work.sample.data(), n, rank, 0).value : 0;
}

TOPSIGN_AVX2 void gather_candidates(const float* y, int64_t n_pool, int32_t floor, Candidates& work) {
    const __m256i mask = _mm256_set1_epi32(kMagnitude), below = _mm256_set1_epi32(floor - 1);
    const __m256i eight = _mm256_set1_epi32(8);
    __m256i rows = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int64_t n = 0, i = 0;
    for (; i + 8 <= n_pool; i += 8) {
        const __m256i v = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(y + i)), mask);
        const int taken = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(v, below)));
        const __m256i order = compress_order(taken);
        store(&work.magnitudes[n], _mm256_permutevar8x32_epi32(v, order));
        store(&work.rows[n], _mm256_permutevar8x32_epi32(rows, order));
        n += _mm_popcnt_u32(unsigned(taken));
        rows = _mm256_add_epi32(rows, eight);
    }
    for (; i < n_pool; ++i)
        if (magnitude(y[i]) >= floor) {
            work.magnitudes[n] = magnitude(y[i]);
            work.rows[n++] = int32_t(i);
        }
    work.count = n;
    store(&work.magnitudes[n], _mm256_set1_epi32(-1));
}

TOPSIGN_AVX2 void locate_avx2(const float* y, int64_t n_pool, int64_t n_bits, Candidates& work,
                              int32_t* locations) {
    int32_t floor = guess_floor(y, n_pool, n_bits, work);
    gather_candidates(y, n_pool, floor, work);
    if (work.count < n_bits) {
        floor = 0;
        gather_candidates(y, n_pool, floor, work);
    }
    const Threshold threshold = bisect(work.magnitudes.data(), work.count, n_bits, floor);
    if (threshold.at_least == n_bits) {
        keep(work, threshold.value - 1, 0, n_bits, locations);
    } else {
        const int64_t above = count_at_least(work.magnitudes.data(), work.count, threshold.value + 1);
        keep(work, threshold.value, n_bits - above, n_bits, locations);
    }
}
#endif

void locate(int path, const float* y, int64_t n_pool, int64_t n_bits, Candidates& work, int32_t* locations) {
#if TOPSIGN_X86
    if (path == kAvx2) return locate_avx2(y, n_pool, n_bits, work, locations);
#endif
    (void)path;
    locate_scalar(y, n_pool, n_bits, work, locations);
}

}  // namespace
}  // namespace topsign

using namespace topsign;

int ts_select(int path, int n_threads, const float* projected, int64_t n_signals, int64_t n_pool,
              int64_t n_bits, int32_t* locations, uint8_t* signs, double* totals) {
    return guarded([&] {
        const int64_t bytes = ceil_div(n_bits, 8);
        parallel_for(n_threads, n_signals, [&](int64_t begin, int64_t end) {
            Candidates work(n_pool);
            for (int64_t i = begin; i < end; ++i) {
                const float* y = projected + i * n_pool;
                int32_t* rows = locations + i * n_bits;
                uint8_t* row_signs = signs + i * bytes;
                locate(path, y, n_pool, n_bits, work, rows);
                std::memset(row_signs, 0, bytes);
                LaneSum sum;
                for (int64_t j = 0; j < n_bits; ++j) {
                    const float value = y[rows[j]];
                    sum.add(j, std::fabs(double(value)));
                    row_signs[j >> 3] |= uint8_t((value >= 0) << (j & 7));  // -0 counts as positive
                }
                totals[i] = sum.total();
            }
        });
    });
}
