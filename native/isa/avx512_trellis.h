// AVX-512 (VBMI) implementations for trellis codes; included in files compiled with AVX-512.
#pragma once

#include <immintrin.h>

#include "../kernels/trellis_plain.h"

namespace topsign {
namespace {

struct Avx512Trellis : PlainTrellis<64> {
    static constexpr int kBytes = 64;
    static constexpr int kTrellisTile = 4;

    static TOPSIGN_INLINE Ints add_products(Ints sum, Shorts a, Shorts b) {
        return cast<Ints>(_mm512_dpwssd_epi32(cast<__m512i>(sum), cast<__m512i>(a), cast<__m512i>(b)));
    }

    static TOPSIGN_INLINE Ints add_products(Ints sum, V levels, Ints values) {
        return cast<Ints>(_mm512_dpbusd_epi32(cast<__m512i>(sum), cast<__m512i>(levels), cast<__m512i>(values)));
    }

    static TOPSIGN_INLINE uint16_t take_less(Costs& least, Costs other) {
        const __mmask16 less = _mm512_movepi32_mask(cast<__m512i>(other - least));  // negative lanes
        least = cast<Costs>(_mm512_mask_mov_epi32(cast<__m512i>(least), less, cast<__m512i>(other)));
        return uint16_t(less);
    }

    static TOPSIGN_INLINE void group_bytes(V a, V b, V c, V d, V* out) {
        const __m512i ab = _mm512_unpacklo_epi8(cast<__m512i>(a), cast<__m512i>(b));
        const __m512i cd = _mm512_unpacklo_epi8(cast<__m512i>(c), cast<__m512i>(d));
        const __m512i ab_high = _mm512_unpackhi_epi8(cast<__m512i>(a), cast<__m512i>(b));
        const __m512i cd_high = _mm512_unpackhi_epi8(cast<__m512i>(c), cast<__m512i>(d));
        out[0] = cast<V>(_mm512_unpacklo_epi16(ab, cd));
        out[1] = cast<V>(_mm512_unpackhi_epi16(ab, cd));
        out[2] = cast<V>(_mm512_unpacklo_epi16(ab_high, cd_high));
        out[3] = cast<V>(_mm512_unpackhi_epi16(ab_high, cd_high));
    }

    static TOPSIGN_INLINE Reals inverse_root(Reals squares) {
        return cast<Reals>(_mm512_div_ps(_mm512_set1_ps(1), _mm512_sqrt_ps(cast<__m512>(squares))));
    }

    // The instruction reads only seven bits of an index, so a stray eighth bit is harmless.
    static TOPSIGN_INLINE auto level_table(const uint8_t* table) {
        const __m512i low = _mm512_loadu_si512(table), high = _mm512_loadu_si512(table + 64);
        return [=](V index) {
            return cast<V>(_mm512_permutex2var_epi8(low, _mm512_srli_epi16(cast<__m512i>(index), 1), high));
        };
    }
};

}  // namespace
}  // namespace topsign
