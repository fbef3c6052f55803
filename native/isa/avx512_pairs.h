// Carry-save adders from three-operand logic instructions.
#pragma once

#include <immintrin.h>

#include "../kernels/vec.h"

namespace topsign {
namespace {

// Two bits of equal weight; two three-operand instructions add them to a third bit.
template <class P>
struct PlainPair {
    P x, y;

    static TOPSIGN_INLINE PlainPair of(P x, P y) { return {x, y}; }

    static TOPSIGN_INLINE PlainPair add(P& sum, const PlainPair& a, const PlainPair& b) {
        const P first = a.add_to(sum);
        return {first, b.add_to(sum)};
    }

    TOPSIGN_INLINE P add_to(P& sum) const {
        constexpr int kOdd = 0x96, kTwoOrThree = 0xe8;
        P carry;
        if constexpr (sizeof(P) == 64) {
            const __m512i s = cast<__m512i>(sum), a = cast<__m512i>(x), b = cast<__m512i>(y);
            sum = cast<P>(_mm512_ternarylogic_epi64(s, a, b, kOdd));
            carry = cast<P>(_mm512_ternarylogic_epi64(s, a, b, kTwoOrThree));
        } else {
            const __m256i s = cast<__m256i>(sum), a = cast<__m256i>(x), b = cast<__m256i>(y);
            sum = cast<P>(_mm256_ternarylogic_epi64(s, a, b, kOdd));
            carry = cast<P>(_mm256_ternarylogic_epi64(s, a, b, kTwoOrThree));
        }
        return carry;
    }
};

}  // namespace
}  // namespace topsign
