// How one adaptive code lies in memory. Two layouts, both of a fixed number of bytes a code.
//
// fast: the pool is cut in blocks of 128 rows; a byte per block counts the locations in it, then a byte per
// location: bit 7 its sign, bits 4-6 the bit in a byte, bits 0-3 the byte in the block.
//
// compact: n_bits sign bits; then the low_bits low bits of every location; then the high parts in unary:
// location i of high part h sets bit h + i (Elias-Fano). With low_bits = 0 the last section is a bitmap
// instead: location h sets bit h. Each section starts on a byte.
#pragma once

#include "common.h"

namespace topsign {

constexpr int64_t kBlockRows = 128;

struct Layout {
    int64_t n_bits, n_pool;
    int64_t low_bits;

    bool fast() const { return low_bits == -1; }
    bool signs() const { return low_bits == -2; }  // the signs of the whole pool, no locations
    bool bitmap() const { return low_bits == 0; }
    int64_t n_blocks() const { return ceil_div(n_pool, kBlockRows); }
    int64_t sign_bytes() const { return ceil_div(n_bits, 8); }
    int64_t low_bytes() const { return ceil_div(n_bits * low_bits, 8); }
    int64_t high_size() const { return bitmap() ? n_pool : n_bits + ((n_pool - 1) >> low_bits); }
    int64_t code_bytes() const {
        if (signs()) return sign_bytes();
        return fast() ? n_blocks() + n_bits : sign_bytes() + low_bytes() + ceil_div(high_size(), 8);
    }
};

// A kept row and its sign in one word: the top bit is set for a negative sign.
constexpr uint32_t kNegative = 0x80000000u;

// Reads one code into n_bits kept rows. Safe on arbitrary bytes: rows always lie in the pool.
void unpack_code(const Layout& layout, const uint8_t* code, uint32_t* kept);

}  // namespace topsign
