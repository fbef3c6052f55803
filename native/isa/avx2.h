// AVX2 implementations; included in files compiled with AVX2.
#pragma once

#include <immintrin.h>

#include "plain.h"

namespace topsign {
namespace {

template <class Isa, int kSize>
struct Avx2Of : Plain<Isa, kSize> {
    using Base = Plain<Isa, kSize>;
    using typename Base::Floats;
    using typename Base::Ints;
    using typename Base::V;

    static constexpr int64_t kFewRings = 64;
    static constexpr double kRingCost = 5, kProductCost = 0.3;

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

    template <class To, class From>
    static TOPSIGN_INLINE To widen(From values) {
        return cast<To>(_mm256_cvtps_pd(cast<__m128>(values)));
    }

    static TOPSIGN_INLINE void widen_halves(const uint8_t* from, float* to) {
        store(to, _mm256_cvtph_ps(_mm_loadu_si128(as_128(from))));
    }

    static TOPSIGN_INLINE Ints to_ints(const int8_t* levels) {
        return cast<Ints>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(as_128(levels))));
    }
    static TOPSIGN_INLINE void narrow(Ints values, uint8_t* to) {
        const __m256i bytes = _mm256_shuffle_epi8(cast<__m256i>(values), _mm256_set1_epi32(0x0c080400));
        const __m256i both = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(both));
    }

    static TOPSIGN_INLINE V look_up_16(const uint8_t* table, V index) {
        const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(as_128(table)));
        return cast<V>(_mm256_shuffle_epi8(both, cast<__m256i>(index)));
    }

    // Sixteen look-ups by the low four bits, of which the high four bits choose, a bit at a time.
    static TOPSIGN_INLINE V look_up_256(const uint8_t* table, V index) {
        const __m256i at = cast<__m256i>(index), low = _mm256_and_si256(at, _mm256_set1_epi8(15));
        const __m256i bit_4 = _mm256_slli_epi16(at, 3), bit_5 = _mm256_slli_epi16(at, 2),
                      bit_6 = _mm256_slli_epi16(at, 1);
        const auto pick = [&](int t) {
            return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(as_128(table + 16 * t))), low);
        };
        const auto pair = [&](int t) { return _mm256_blendv_epi8(pick(t), pick(t + 1), bit_4); };
        const auto four = [&](int t) { return _mm256_blendv_epi8(pair(t), pair(t + 2), bit_5); };
        const auto eight = [&](int t) { return _mm256_blendv_epi8(four(t), four(t + 4), bit_6); };
        return cast<V>(_mm256_blendv_epi8(eight(0), eight(8), at));
    }

    // The product of two signed bytes is that of one's magnitude and the other with its sign.
    static TOPSIGN_INLINE Ints add_byte_products(Ints sum, V levels, Ints values) {
        const __m256i by = cast<__m256i>(values), signed_levels = _mm256_sign_epi8(cast<__m256i>(levels), by);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(by), signed_levels);
        return sum + cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }

   protected:
    static TOPSIGN_INLINE const __m128i* as_128(const void* at) { return static_cast<const __m128i*>(at); }
};

}  // namespace
}  // namespace topsign
