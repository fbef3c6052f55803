// Comparing codes with queries: mismatching signs, and sums of real projections.
#include "scan.h"

#include "rows.h"

namespace topsign {
namespace {

int32_t count_mismatches_scalar(const uint32_t* kept, int64_t begin, int64_t n, const uint32_t* query) {
    int32_t count = 0;
    for (int64_t i = begin; i < n; ++i) {
        const uint32_t row = kept[i] & ~kNegative, negative = kept[i] >> 31;
        count += int32_t((query[row >> 5] >> (row & 31) & 1) == negative);
    }
    return count;
}

float sum_kept_scalar(const uint32_t* kept, int64_t begin, int64_t n, const float* query, LaneSum& sum) {
    for (int64_t i = begin; i < n; ++i) {
        const float value = query[kept[i] & ~kNegative];
        sum.add(i, kept[i] & kNegative ? -value : value);
    }
    return float(sum.total());
}

#if TOPSIGN_X86
TOPSIGN_AVX2 int32_t count_mismatches_avx2(const uint32_t* kept, int64_t n, const uint32_t* query) {
    const __m256i row_mask = _mm256_set1_epi32(INT32_MAX), one = _mm256_set1_epi32(1);
    const __m256i within_word = _mm256_set1_epi32(31);
    __m256i counts = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i entry = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kept + i));
        const __m256i row = _mm256_and_si256(entry, row_mask);
        const __m256i words =
            _mm256_i32gather_epi32(reinterpret_cast<const int*>(query), _mm256_srli_epi32(row, 5), 4);
        const __m256i bit =
            _mm256_and_si256(_mm256_srlv_epi32(words, _mm256_and_si256(row, within_word)), one);
        // Both are one bit: equal where the query is positive and the code negative, or the reverse.
        counts = _mm256_sub_epi32(counts, _mm256_cmpeq_epi32(bit, _mm256_srli_epi32(entry, 31)));
    }
    int32_t lanes[8], count = count_mismatches_scalar(kept, i, n, query);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), counts);
    for (int32_t lane : lanes) count += lane;
    return count;
}

TOPSIGN_AVX2 float sum_kept_avx2(const uint32_t* kept, int64_t n, const float* query) {
    const __m128i row_mask = _mm_set1_epi32(INT32_MAX);
    __m256d lanes[4] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int g = 0; g < 4; ++g) {
            const __m128i entry = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kept + i + 4 * g));
            const __m128 value = _mm_i32gather_ps(query, _mm_and_si128(entry, row_mask), 4);
            const __m128 sign = _mm_castsi128_ps(_mm_andnot_si128(row_mask, entry));
            lanes[g] = _mm256_add_pd(lanes[g], _mm256_cvtps_pd(_mm_xor_ps(value, sign)));
        }
    LaneSum sum;
    for (int g = 0; g < 4; ++g) _mm256_storeu_pd(sum.lane + 4 * g, lanes[g]);
    return sum_kept_scalar(kept, i, n, query, sum);
}
#endif

int32_t count_mismatches(int path, const uint32_t* kept, int64_t n, const uint32_t* query) {
#if TOPSIGN_X86
    if (path == kAvx2) return count_mismatches_avx2(kept, n, query);
#endif
    (void)path;
    return count_mismatches_scalar(kept, 0, n, query);
}

float sum_signs_scalar(const uint8_t* signs, int64_t begin, int64_t n, const float* query, LaneSum& sum) {
    for (int64_t i = begin; i < n; ++i) sum.add(i, get_bit(signs, i) ? query[i] : -query[i]);
    return float(sum.total());
}

#if TOPSIGN_X86
// Sign masks of four values, by the four bits that say which are positive.
struct SignMasks {
    alignas(16) uint32_t mask[16][4];
    SignMasks() {
        for (int bits = 0; bits < 16; ++bits)
            for (int lane = 0; lane < 4; ++lane) mask[bits][lane] = bits >> lane & 1 ? 0 : kNegative;
    }
};
const SignMasks kSignMasks;

TOPSIGN_AVX2 float sum_signs_avx2(const uint8_t* signs, int64_t n, const float* query) {
    __m256d lanes[4] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int g = 0; g < 4; ++g) {
            const int bits = signs[i / 8 + g / 2] >> (g % 2 * 4) & 15;
            const __m128 mask = _mm_load_ps(reinterpret_cast<const float*>(kSignMasks.mask[bits]));
            const __m128 value = _mm_xor_ps(_mm_loadu_ps(query + i + 4 * g), mask);
            lanes[g] = _mm256_add_pd(lanes[g], _mm256_cvtps_pd(value));
        }
    LaneSum sum;
    for (int g = 0; g < 4; ++g) _mm256_storeu_pd(sum.lane + 4 * g, lanes[g]);
    return sum_signs_scalar(signs, i, n, query, sum);
}
#endif

// Calls compare(kept rows of code i, i) for every code, each unpacked once.
template <class Compare>
void for_each_code(int path, int n_threads, const Layout& layout, const uint8_t* codes, int64_t n_codes,
                   const Compare& compare) {
    const int64_t bytes = layout.code_bytes();
    parallel_for(n_threads, n_codes, [&](int64_t begin, int64_t end) {
        std::vector<uint32_t> kept(layout.n_bits + 32);
        for (int64_t i = begin; i < end; ++i) {
            unpack_kept(path, layout, codes + i * bytes, (i + 1) * bytes + 64 <= n_codes * bytes, kept.data());
            compare(kept.data(), i);
        }
    });
}

}  // namespace

float sum_kept(int path, const uint32_t* kept, int64_t n, const float* query) {
#if TOPSIGN_X86
    if (path == kAvx2) return sum_kept_avx2(kept, n, query);
#endif
    (void)path;
    LaneSum sum;
    return sum_kept_scalar(kept, 0, n, query, sum);
}

float sum_signs(int path, const uint8_t* signs, int64_t n, const float* query) {
#if TOPSIGN_X86
    if (path == kAvx2) return sum_signs_avx2(signs, n, query);
#endif
    (void)path;
    LaneSum sum;
    return sum_signs_scalar(signs, 0, n, query, sum);
}

int32_t count_differing(const uint8_t* a, const uint8_t* b, const uint8_t* mask, int64_t bytes) {
    int32_t count = 0;
    int64_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t x, y, m = ~uint64_t(0);
        std::memcpy(&x, a + at, 8);
        std::memcpy(&y, b + at, 8);
        if (mask) std::memcpy(&m, mask + at, 8);
        count += count_ones((x ^ y) & m);
    }
    for (; at < bytes; ++at) count += count_ones(uint64_t((a[at] ^ b[at]) & (mask ? mask[at] : 255)));
    return count;
}

}  // namespace topsign

using namespace topsign;

int ts_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                  int64_t n_pool, int64_t low_bits, const uint8_t* query_bits, int64_t n_queries, int32_t* out) {
    return guarded([&] {
        const Layout layout{n_bits, n_pool, low_bits};
        const int64_t bytes = ceil_div(n_pool, 8), words = ceil_div(n_pool, 32);
        if (layout.signs()) {
            parallel_for(n_threads, n_codes, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                    for (int64_t q = 0; q < n_queries; ++q)
                        out[q * n_codes + i] = count_differing(codes + i * bytes, query_bits + q * bytes, nullptr, bytes);
            });
            return;
        }
        std::vector<uint32_t> queries(n_queries * words);
        for (int64_t q = 0; q < n_queries; ++q) std::memcpy(&queries[q * words], query_bits + q * bytes, bytes);
        for_each_code(path, n_threads, layout, codes, n_codes, [&](const uint32_t* kept, int64_t i) {
            for (int64_t q = 0; q < n_queries; ++q)
                out[q * n_codes + i] = count_mismatches(path, kept, n_bits, &queries[q * words]);
        });
    });
}

int ts_score_sums(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                  int64_t n_pool, int64_t low_bits, const float* queries, int64_t n_queries, float* out) {
    return guarded([&] {
        const Layout layout{n_bits, n_pool, low_bits};
        if (layout.signs()) {
            parallel_for(n_threads, n_codes, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                    for (int64_t q = 0; q < n_queries; ++q)
                        out[q * n_codes + i] =
                            sum_signs(path, codes + i * layout.code_bytes(), n_pool, queries + q * n_pool);
            });
            return;
        }
        for_each_code(path, n_threads, layout, codes, n_codes, [&](const uint32_t* kept, int64_t i) {
            for (int64_t q = 0; q < n_queries; ++q)
                out[q * n_codes + i] = sum_kept(path, kept, n_bits, queries + q * n_pool);
        });
    });
}
