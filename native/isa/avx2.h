// AVX2 implementations; included in files compiled with AVX2.
#pragma once

#include <immintrin.h>

#include "../kernels/trellis_plain.h"
#include "plain.h"

namespace topsign {
namespace {

struct Avx2 : Plain, PlainTrellis<32> {
    static constexpr int kBytes = 32;
    using Narrow = Avx2;  // for bit planes of up to 64 queries
    static constexpr bool kLooksUp = true;
    using CompactCounter = WordCounter<Avx2>;
    static constexpr int64_t kFewFast = 6, kFewCompact = 2, kFewScoresFast = 6, kFewScoresCompact = 3;
    using V = Vec<uint8_t, 32>;
    using S = Vec<int8_t, 32>;
    using Wide = Vec<int16_t, 16>;

    static constexpr int64_t kCompressed = 8;
    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        const __m256i value = _mm256_and_si256(load<__m256i>(y), _mm256_set1_epi32(kMagnitude));
        const __m256i number = _mm256_add_epi32(_mm256_set1_epi32(row), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256i enough = _mm256_cmpgt_epi32(value, _mm256_set1_epi32(floor - 1));
        const int taken = _mm256_movemask_ps(_mm256_castsi256_ps(enough));
        const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64(as_128(kOnesOfByte.place[taken])));
        store(magnitudes, _mm256_permutevar8x32_epi32(value, order));
        store(rows, _mm256_permutevar8x32_epi32(number, order));
        return _mm_popcnt_u32(unsigned(taken));
    }

    static TOPSIGN_INLINE int64_t compress_rows(const int32_t* magnitudes, const int32_t* rows, int32_t least,
                                                int32_t* kept) {
        const __m256i enough = _mm256_cmpgt_epi32(load<__m256i>(magnitudes), _mm256_set1_epi32(least - 1));
        const int taken = _mm256_movemask_ps(_mm256_castsi256_ps(enough));
        const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64(as_128(kOnesOfByte.place[taken])));
        store(kept, _mm256_permutevar8x32_epi32(load<__m256i>(rows), order));
        return _mm_popcnt_u32(unsigned(taken));
    }

    template <class V, class Bytes>
    static TOPSIGN_INLINE V widen(Bytes bytes) {
        if constexpr (sizeof(V) == 16 && sizeof(Bytes) == 8)
            return cast<V>(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(cast<int64_t>(bytes))));
        else if constexpr (sizeof(Lane<Bytes>) == 4)
            return cast<V>(_mm256_cvtps_pd(cast<__m128>(bytes)));
        else if constexpr (sizeof(Bytes) == 8)
            return cast<V>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(cast<int64_t>(bytes))));
        else
            return cast<V>(_mm256_cvtepu8_epi16(cast<__m128i>(bytes)));
    }

    static TOPSIGN_INLINE int count_byte(uint8_t byte) { return _mm_popcnt_u32(byte); }
    static TOPSIGN_INLINE uint64_t spread(uint64_t fields, const Spread& by) { return _pdep_u64(fields, by.mask()); }
    static TOPSIGN_INLINE void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }

    static TOPSIGN_INLINE V load_parts(const uint8_t* const (&at)[2]) {
        const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128(as_128(at[0])));
        return cast<V>(_mm256_inserti128_si256(low, _mm_loadu_si128(as_128(at[1])), 1));
    }

    // Mask of the first counts[i] lanes of part i; counts are at most 16.
    using Present = S;
    static TOPSIGN_INLINE S first_of_parts(const uint8_t* counts) {
        const __m256i both = _mm256_set1_epi16(load<int16_t>(counts));
        const __m256i one_each = _mm256_setr_epi64x(0, 0, 0x0101010101010101, 0x0101010101010101);
        return cast<S>(_mm256_shuffle_epi8(both, one_each)) >
               cast<S>(
                   _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
    }

    static TOPSIGN_INLINE V look_up(V table, V index) {
        return cast<V>(_mm256_shuffle_epi8(cast<__m256i>(table), cast<__m256i>(index)));
    }

    static TOPSIGN_INLINE Vec<uint8_t, 16> look_up_16(Vec<uint8_t, 16> table, Vec<uint8_t, 16> index) {
        return cast<Vec<uint8_t, 16>>(_mm_shuffle_epi8(cast<__m128i>(table), cast<__m128i>(index)));
    }

    static TOPSIGN_INLINE V upper_halves(V bytes) {
        return cast<V>(_mm256_and_si256(_mm256_srli_epi16(cast<__m256i>(bytes), 4), _mm256_set1_epi8(15)));
    }

    // Nibbles of sixteen bytes, the low one first.
    static TOPSIGN_INLINE V halves_of_bytes(const uint8_t* bytes) {
        const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(as_128(bytes)));
        return cast<V>(_mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15)));
    }

    // Expands bits to a mask of byte lanes.
    static TOPSIGN_INLINE V spread_bits(const uint8_t* bits) {
        const __m256i byte_of_lane = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i masks = _mm256_set1_epi64x(int64_t(0x8040201008040201u));
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(load<int32_t>(bits)), byte_of_lane);
        return cast<V>(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, masks), masks));
    }

    // Mask of the lanes whose word has its bit `place` set. Words are split into low and high bytes, which pack
    // instructions leave in a permuted order; the order is restored at the end.
    static TOPSIGN_INLINE V bits_of_words(const uint16_t* words, V place) {
        const __m256i part =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
        const __m256i a = _mm256_shuffle_epi8(load<__m256i>(words), part);
        const __m256i b = _mm256_shuffle_epi8(load<__m256i>(words + 16), part);
        const __m256i at = _mm256_permute4x64_epi64(cast<__m256i>(place), _MM_SHUFFLE(3, 1, 2, 0));
        const __m256i bytes =
            _mm256_blendv_epi8(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), _mm256_slli_epi16(at, 4));
        const __m256i mask = _mm256_shuffle_epi8(_mm256_set1_epi64x(int64_t(0x8040201008040201u)), at);
        const __m256i found = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask);
        return cast<V>(_mm256_permute4x64_epi64(found, _MM_SHUFFLE(3, 1, 2, 0)));
    }

    static TOPSIGN_INLINE int32_t sum_bytes(V bytes) {
        return sum_quads(_mm256_sad_epu8(cast<__m256i>(bytes), _mm256_setzero_si256()));
    }

    // Looks up one of 128 values per lane: the low four bits of a byte index eight registers, the next three select
    // one of the results, and the sign bit negates it.
    static TOPSIGN_INLINE auto choose_values(V bytes, S present) {
        const __m256i b = cast<__m256i>(bytes), lookup = _mm256_and_si256(b, _mm256_set1_epi8(15));
        const __m256i by_1 = _mm256_slli_epi16(b, 3), by_2 = _mm256_slli_epi16(b, 2), by_4 = _mm256_slli_epi16(b, 1);
        const __m256i sign = _mm256_and_si256(_mm256_or_si256(b, _mm256_set1_epi8(1)), cast<__m256i>(present));
        return [=](const int8_t* values) {
            __m256i pick[8];
            for (int t = 0; t < 8; ++t) pick[t] = _mm256_shuffle_epi8(load<__m256i>(values + 32 * t), lookup);
            for (int t = 0; t < 8; t += 2) pick[t] = _mm256_blendv_epi8(pick[t], pick[t + 1], by_1);
            for (int t = 0; t < 8; t += 4) pick[t] = _mm256_blendv_epi8(pick[t], pick[t + 2], by_2);
            return cast<S>(_mm256_sign_epi8(_mm256_blendv_epi8(pick[0], pick[4], by_4), sign));
        };
    }

    static TOPSIGN_INLINE Wide add_pairs(Wide sums, S values) {
        return sums + cast<Wide>(_mm256_maddubs_epi16(_mm256_set1_epi8(1), cast<__m256i>(values)));
    }

    static TOPSIGN_INLINE int32_t sum_lanes(Wide sums) {
        const __m256i pairs = _mm256_madd_epi16(cast<__m256i>(sums), _mm256_set1_epi16(1));
        return sum_quads(_mm256_add_epi32(pairs, _mm256_srli_epi64(pairs, 32)));
    }

    static int32_t count_mismatches(const uint32_t* kept, int64_t n, const uint32_t* query) {
        const __m256i row_mask = _mm256_set1_epi32(INT32_MAX), one = _mm256_set1_epi32(1);
        __m256i counts = _mm256_setzero_si256();
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            const __m256i entry = load<__m256i>(kept + i), row = _mm256_and_si256(entry, row_mask);
            const __m256i words =
                _mm256_i32gather_epi32(reinterpret_cast<const int*>(query), _mm256_srli_epi32(row, 5), 4);
            const __m256i bit =
                _mm256_and_si256(_mm256_srlv_epi32(words, _mm256_and_si256(row, _mm256_set1_epi32(31))), one);
            // Both are single bits; they are equal where the signs of query and code differ.
            counts = _mm256_sub_epi32(counts, _mm256_cmpeq_epi32(bit, _mm256_srli_epi32(entry, 31)));
        }
        int32_t lanes[8], count = topsign::count_mismatches(kept, i, n, query);
        store(lanes, counts);
        for (int32_t lane : lanes) count += lane;
        return count;
    }

    static float sum_kept(const uint32_t* kept, int64_t n, const float* query) {
        constexpr int64_t kAhead = 1024;
        const __m128i row_mask = _mm_set1_epi32(INT32_MAX);
        __m256d lanes[4] = {};
        int64_t i = 0;
        for (; i + 16 <= n; i += 16) {
            if (i + kAhead + 16 <= n)  // queries of long codes exceed the near caches
                for (int64_t j = i + kAhead; j < i + kAhead + 16; ++j) prefetch(query + (kept[j] & INT32_MAX));
            for (int g = 0; g < 4; ++g) {
                const __m128i entry = _mm_loadu_si128(as_128(kept + i + 4 * g));
                const __m128 value = _mm_i32gather_ps(query, _mm_and_si128(entry, row_mask), 4);
                const __m128 sign = _mm_castsi128_ps(_mm_andnot_si128(row_mask, entry));
                lanes[g] = _mm256_add_pd(lanes[g], _mm256_cvtps_pd(_mm_xor_ps(value, sign)));
            }
        }
        LaneSum sum;
        std::memcpy(sum.lane, lanes, sizeof lanes);
        return topsign::sum_kept(kept, i, n, query, sum);
    }

    static TOPSIGN_INLINE Ints add_products(Ints sum, Shorts a, Shorts b) {
        return cast<Ints>(_mm256_add_epi32(cast<__m256i>(sum), _mm256_madd_epi16(cast<__m256i>(a), cast<__m256i>(b))));
    }

    // Level bytes are at most 127, so the sum of two products fits 16 bits.
    static TOPSIGN_INLINE Ints add_products(Ints sum, V levels, Ints values) {
        const __m256i pairs = _mm256_maddubs_epi16(cast<__m256i>(levels), cast<__m256i>(values));
        return sum + cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }

    static TOPSIGN_INLINE uint16_t take_less(Costs& least, Costs other) {
        const __m256 less = cast<__m256>(other - least);  // negative lanes
        least = cast<Costs>(_mm256_blendv_ps(cast<__m256>(least), cast<__m256>(other), less));
        return uint16_t(_mm256_movemask_ps(less));
    }

    static TOPSIGN_INLINE void group_bytes(V a, V b, V c, V d, V* out) {
        const __m256i ab = _mm256_unpacklo_epi8(cast<__m256i>(a), cast<__m256i>(b));
        const __m256i cd = _mm256_unpacklo_epi8(cast<__m256i>(c), cast<__m256i>(d));
        const __m256i ab_high = _mm256_unpackhi_epi8(cast<__m256i>(a), cast<__m256i>(b));
        const __m256i cd_high = _mm256_unpackhi_epi8(cast<__m256i>(c), cast<__m256i>(d));
        out[0] = cast<V>(_mm256_unpacklo_epi16(ab, cd));
        out[1] = cast<V>(_mm256_unpackhi_epi16(ab, cd));
        out[2] = cast<V>(_mm256_unpacklo_epi16(ab_high, cd_high));
        out[3] = cast<V>(_mm256_unpackhi_epi16(ab_high, cd_high));
    }

    static TOPSIGN_INLINE Reals inverse_root(Reals squares) {
        return cast<Reals>(_mm256_div_ps(_mm256_set1_ps(1), _mm256_sqrt_ps(cast<__m256>(squares))));
    }

    // The lower half of the table mirrors the upper one: four 16-entry look-ups, selected by two bits.
    static TOPSIGN_INLINE auto level_table(const uint8_t* table) {
        __m256i part[4];
        for (int t = 0; t < 4; ++t) part[t] = _mm256_broadcastsi128_si256(_mm_loadu_si128(as_128(table + 64 + 16 * t)));
        return [=](V index) {
            const __m256i lower = _mm256_cmpgt_epi8(cast<__m256i>(index), _mm256_set1_epi8(-1));
            const __m256i mirrored = _mm256_xor_si256(cast<__m256i>(index), lower);
            const __m256i lookup = _mm256_and_si256(_mm256_srli_epi16(mirrored, 1), _mm256_set1_epi8(15));
            const __m256i by_1 = _mm256_slli_epi16(mirrored, 2), by_2 = _mm256_slli_epi16(mirrored, 1);
            __m256i pick[4];
            for (int t = 0; t < 4; ++t) pick[t] = _mm256_shuffle_epi8(part[t], lookup);
            for (int t = 0; t < 4; t += 2) pick[t] = _mm256_blendv_epi8(pick[t], pick[t + 1], by_1);
            const __m256i upper = _mm256_blendv_epi8(pick[0], pick[2], by_2);
            return cast<V>(_mm256_xor_si256(upper, _mm256_and_si256(lower, _mm256_set1_epi8(127))));
        };
    }

   private:
    static TOPSIGN_INLINE const __m128i* as_128(const void* at) { return static_cast<const __m128i*>(at); }

    // Sum of the low halves of 64-bit lanes.
    static TOPSIGN_INLINE int32_t sum_quads(__m256i quads) {
        const __m128i two = _mm_add_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
        return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2);
    }
};

}  // namespace
}  // namespace topsign
