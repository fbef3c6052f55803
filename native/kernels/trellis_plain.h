// Operations of the trellis kernels without intrinsics, for vectors of any width.
#pragma once

#include <algorithm>
#include <cmath>

#include "vec.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace topsign {
namespace {

template <int kBytes>
struct PlainTrellis {
    using V = Vec<uint8_t, kBytes>;
    using Shorts = Vec<int16_t, kBytes / 2>;
    using Ints = Vec<int32_t, kBytes / 4>;
    using Costs = Vec<uint32_t, kBytes / 4>;
    using Reals = Vec<float, kBytes / 4>;

    static constexpr int kTrellisTile = 2;  // queries multiplied together

    // Adds the products of two 16-bit numbers each, modulo 2^32: unsigned, because costs of the encoder wrap.
    static TOPSIGN_INLINE Ints add_products(Ints sum, Shorts a, Shorts b) {
#if defined(__SSE2__)
        if constexpr (kBytes == 16)
            return cast<Ints>(cast<Costs>(sum) + cast<Costs>(_mm_madd_epi16(cast<__m128i>(a), cast<__m128i>(b))));
#endif
        const Ints x = cast<Ints>(a), y = cast<Ints>(b);
        const Ints low = (x << 16 >> 16) * (y << 16 >> 16), high = (x >> 16) * (y >> 16);
        return cast<Ints>(cast<Costs>(sum) + cast<Costs>(low) + cast<Costs>(high));
    }

    // Adds the products of four unsigned bytes and four signed ones in each lane.
    static TOPSIGN_INLINE Ints add_products(Ints sum, V levels, Ints values) {
        const Shorts four = cast<Shorts>(levels), by = cast<Shorts>(values);
        const Shorts low = cast<Shorts>(cast<Vec<uint16_t, kBytes / 2>>(four) & splat<Vec<uint16_t, kBytes / 2>>(255));
        return add_products(add_products(sum, low, by << 8 >> 8), Shorts(four >> 8), Shorts(by >> 8));
    }

    // A bit for each lane of a mask.
    static TOPSIGN_INLINE uint16_t lane_bits(Ints mask) {
        uint16_t bits = 0;
        for (int i = 0; i < kBytes / 4; ++i) bits |= uint16_t((mask[i] & 1) << i);
        return bits;
    }

    // Selects the smaller of two costs modulo 2^32, the first if equal; returns a bit mask of lanes that took the
    // second.
    static TOPSIGN_INLINE uint16_t take_less(Costs& least, Costs other) {
        const Ints less = cast<Ints>(other - least) < Ints{};
        least = least ^ ((least ^ other) & cast<Costs>(less));
        return PlainTrellis::lane_bits(less);
    }

    // Interleaves the bytes of four registers, in any order.
    static TOPSIGN_INLINE void group_bytes(V a, V b, V c, V d, V* out) {
        const auto interleave = [](auto x, auto y, int bits, auto mask, auto& even, auto& odd) {
            even = (x & mask) | (y << bits);
            odd = (x >> bits) | (y & ~mask);
        };
        using Words = Vec<uint16_t, kBytes / 2>;
        Words ab[2], cd[2];
        interleave(cast<Words>(a), cast<Words>(b), 8, splat<Words>(0xff), ab[0], ab[1]);
        interleave(cast<Words>(c), cast<Words>(d), 8, splat<Words>(0xff), cd[0], cd[1]);
        for (int i = 0; i < 2; ++i) {
            Costs even, odd;
            interleave(cast<Costs>(ab[i]), cast<Costs>(cd[i]), 16, splat<Costs>(0xffff), even, odd);
            out[2 * i] = cast<V>(even);
            out[2 * i + 1] = cast<V>(odd);
        }
    }

    // Transposes eight big-endian words of eight codes, starting at byte `begin`: one row of entries per word.
    static TOPSIGN_INLINE void transpose(const uint8_t* const (&codes)[8], int64_t begin, uint16_t* to, int64_t row) {
#if defined(__SSE2__)
        __m128i a[8], b[8];
        for (int e = 0; e < 8; ++e) {
            const __m128i words = load<__m128i>(codes[e] + begin);
            a[e] = _mm_or_si128(_mm_slli_epi16(words, 8), _mm_srli_epi16(words, 8));
        }
        for (int stage = 0; stage < 3; ++stage) {  // 8 x 8 transpose: interleave rows i and i + 4 three times
            for (int i = 0; i < 4; ++i) {
                b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
                b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
            }
            std::copy(b, b + 8, a);
        }
        for (int j = 0; j < 8; ++j) store(to + j * row, a[j]);
#else
        for (int e = 0; e < 8; ++e)
            for (int j = 0; j < 8; ++j) {
                const uint8_t* const at = codes[e] + begin + 2 * j;
                to[j * row + e] = uint16_t(at[0] << 8 | at[1]);
            }
#endif
    }

    static TOPSIGN_INLINE Reals inverse_root(Reals squares) {
        for (int i = 0; i < kBytes / 4; ++i) squares[i] = 1.f / std::sqrt(squares[i]);
        return squares;
    }

    // Looks up the seven high bits of bytes in a table of 128 entries.
    static TOPSIGN_INLINE auto level_table(const uint8_t* table) {
        return [table](V index) {
            uint8_t bytes[kBytes];
            store(bytes, index);
            for (int i = 0; i < kBytes; ++i) bytes[i] = table[bytes[i] >> 1];
            return load<V>(bytes);
        };
    }
};

}  // namespace
}  // namespace topsign
