// Small operations on integers and packed bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "codes are little-endian; this processor is not"
#endif

namespace topsign {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int count_trailing_zeros(uint64_t word) {
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int n = 0;
    for (; !(word & 1); word >>= 1) ++n;
    return n;
#endif
}

inline int count_ones(uint64_t word) {
#if defined(__GNUC__)
    return __builtin_popcountll(word);
#else
    int n = 0;
    for (; word; word &= word - 1) ++n;
    return n;
#endif
}

inline bool get_bit(const uint8_t* bits, int64_t i) { return bits[i >> 3] >> (i & 7) & 1; }
inline void set_bit(uint8_t* bits, int64_t i) { bits[i >> 3] |= uint8_t(1u << (i & 7)); }

// Whether code i is searched; with a null bitmap all codes are.
inline bool is_alive(const uint8_t* alive, int64_t i) { return !alive || get_bit(alive, i); }

// Sum of bytes, eight at a time.
inline int64_t sum_bytes(const uint8_t* bytes, int64_t n) {
    constexpr uint64_t kEven = 0x00ff00ff00ff00ffu;
    int64_t total = 0, i = 0;
    while (i + 8 <= n) {
        uint64_t lanes = 0;  // four 16-bit sums; they can hold 128 words
        for (const int64_t end = std::min(n / 8 * 8, i + 1024); i < end; i += 8) {
            uint64_t word;
            std::memcpy(&word, bytes + i, 8);
            lanes += (word & kEven) + (word >> 8 & kEven);
        }
        total += int64_t((lanes & 0xffff) + (lanes >> 16 & 0xffff) + (lanes >> 32 & 0xffff) + (lanes >> 48));
    }
    for (; i < n; ++i) total += bytes[i];
    return total;
}

// Whether one of eight bytes is above 16.
inline bool any_above_16(uint64_t bytes) {
    constexpr uint64_t kTop = 0x8080808080808080u;
    return (((bytes & ~kTop) + 0x6f6f6f6f6f6f6f6fu) | bytes) & kTop;
}

// 64 x 64 bits, transposed in place: bit j of word i becomes bit i of word j.
inline void transpose(uint64_t (&words)[64]) {
    uint64_t mask = 0x00000000FFFFFFFFu;
    for (int width = 32; width > 0; width /= 2, mask ^= mask << width)
        for (int i = 0; i < 64; i = ((i | width) + 1) & ~width) {
            const uint64_t swapped = ((words[i] >> width) ^ words[i | width]) & mask;
            words[i] ^= swapped << width;
            words[i | width] ^= swapped;
        }
}

}  // namespace topsign
