// Memory layouts of adaptive codes. Both have a fixed number of bytes per code.
//
// fast: the pool is cut in blocks of 128 rows; a byte per block counts the locations in it, then a byte per
// location: bit 7 its sign, bits 4-6 the bit in a byte, bits 0-3 the byte in the block.
//
// compact: n_bits sign bits; then the low_bits low bits of every location; then the high parts in unary:
// location i of high part h sets bit h + i (Elias-Fano). With low_bits = 0 the last section is a bitmap
// instead: location h sets bit h. Each section starts on a byte.
#pragma once

#include <vector>

#include "../topsign.h"
#include "bits.h"

namespace topsign {

constexpr int64_t kBlockRows = 128;

struct Layout : ts_layout {
    Layout(const ts_layout& sizes) : ts_layout(sizes) {}

    bool fast() const { return low_bits == -1; }
    bool signs() const { return low_bits == -2; }  // signs of the whole pool, without locations
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

// Row number of a signed location in the look-up table of a batch of queries. Each layout has its own order, which is
// cheap to unpack to: in the fast layout the 256 rows of a block are indexed by location bytes, otherwise the row is
// 2 * location + positive.
inline int64_t table_row(const Layout& layout, int64_t location, bool positive) {
    if (!layout.fast()) return 2 * location + positive;
    const int64_t offset = location % kBlockRows;
    return location / kBlockRows * 256 + (int64_t(positive) << 7 | (offset & 7) << 4 | offset >> 3);
}

inline int64_t table_rows(const Layout& layout) { return layout.fast() ? layout.n_blocks() * 256 : 2 * layout.n_pool; }

// Whether all rows times 2^shift fit 16 bits, which halves the memory and is faster to unpack.
inline bool narrow_rows(const Layout& layout, int shift) { return table_rows(layout) << shift <= 65536; }

// Approximate nanoseconds per code in a scan of this many queries at the cost of bit planes.
inline double scan_cost(const Layout& layout, int64_t n_queries) {
    return double(layout.n_bits) * (0.1 + 0.005 * double(n_queries));
}

// Returns pointers to codes with at least kPad readable bytes after each; codes near the end of the array are copied.
class CodeReader {
   public:
    static constexpr int64_t kPad = 64;

    CodeReader(const Layout& layout, const uint8_t* codes, int64_t n_codes)
        : codes_(codes), stride_(layout.code_bytes()), size_(n_codes * stride_), copy_(stride_ + kPad) {}

    const uint8_t* operator()(int64_t i) {
        const uint8_t* code = codes_ + i * stride_;
        if ((i + 1) * stride_ + kPad <= size_) return code;
        std::memcpy(copy_.data(), code, stride_);
        return copy_.data();
    }

   private:
    const uint8_t* codes_;
    int64_t stride_, size_;
    std::vector<uint8_t> copy_;
};

}  // namespace topsign
