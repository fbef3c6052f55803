// Adaptive codes: n_bits sign bits; then the low_bits low bits of every location; then the high parts in unary:
// location i of high part h sets bit h + i (Elias-Fano). With low_bits = 0 the last section is a bitmap instead:
// location h sets bit h. Each section starts on a byte.
#pragma once

#include "../topsign.h"
#include "bits.h"

namespace topsign {

struct Layout : ts_layout {
    Layout(const ts_layout& sizes) : ts_layout(sizes) {}

    bool bitmap() const { return low_bits == 0; }
    int64_t sign_bytes() const { return ceil_div(n_bits, 8); }
    int64_t low_bytes() const { return ceil_div(n_bits * low_bits, 8); }
    int64_t high_size() const { return bitmap() ? n_pool : n_bits + ((n_pool - 1) >> low_bits); }
    int64_t code_bytes() const { return sign_bytes() + low_bytes() + ceil_div(high_size(), 8); }
};

// A kept location and its sign in one word: the top bit is set for a negative sign.
constexpr uint32_t kNegative = 0x80000000u;

// Reads one code into n_bits kept locations. Safe on arbitrary bytes: locations always lie in the pool. kCodePadding
// bytes after the code must be readable.
constexpr int64_t kCodePadding = 8;
void unpack_code(const Layout& layout, const uint8_t* code, uint32_t* kept);

void pack_codes(int n_threads, const Layout& layout, int64_t n_codes, const ts_contents& contents, uint8_t* out);
void unpack_codes(int n_threads, const Layout& layout, const uint8_t* codes, int64_t n_codes, const ts_contents& out);
void valid_codes(int n_threads, const Layout& layout, const uint8_t* codes, int64_t n_codes, uint8_t* valid);

}  // namespace topsign
