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

}  // namespace topsign
