// Codes as rows of a table that a batch of queries has prepared: one row for each signed location.
#pragma once

#include "layout.h"

namespace topsign {

// Where the row of a signed location stands. Each layout has its own order, the one it unpacks to without effort:
// in the fast layout a block's 256 rows follow its bytes, otherwise rows are 2 * location + positive.
inline int64_t table_row(const Layout& layout, int64_t location, bool positive) {
    if (!layout.fast()) return 2 * location + positive;
    const int64_t offset = location % kBlockRows;
    return location / kBlockRows * 256 + (int64_t(positive) << 7 | (offset & 7) << 4 | offset >> 3);
}

inline int64_t table_rows(const Layout& layout) { return layout.fast() ? layout.n_blocks() * 256 : 2 * layout.n_pool; }

// Rows of 32 bytes are numbered in units of 8: base + 8 * row is one address on x86.
constexpr int kRowShift = 2;

// Whether every row, times 2^shift, fits 16 bits: half the memory, and quicker to unpack.
inline bool narrow_rows(const Layout& layout, int shift) { return table_rows(layout) << shift <= 65536; }

// Table rows of one code, each times 2^shift, as uint16_t or uint32_t. Room for 32 more than n_bits is written to.
template <class Row>
void unpack_rows(int path, const Layout& layout, const uint8_t* code, bool padded, int shift, Row* rows);

// Kept rows of one code, as unpack_code gives them, by way of table rows where those are quicker to have.
void unpack_kept(int path, const Layout& layout, const uint8_t* code, bool padded, uint32_t* kept);

// The rows of every code in turn, none of which reads past the end of the codes.
template <class Row>
class RowReader {
   public:
    RowReader(int path, const Layout& layout, const uint8_t* codes, int64_t n_codes, int shift = 0)
        : path_(path), layout_(layout), codes_(codes), stride_(layout.code_bytes()), size_(n_codes * stride_),
          shift_(shift) {}

    void read(int64_t i, Row* rows) const {
        unpack_rows(path_, layout_, codes_ + i * stride_, (i + 1) * stride_ + 64 <= size_, shift_, rows);
    }

   private:
    int path_;
    const Layout& layout_;
    const uint8_t* codes_;
    int64_t stride_, size_;
    int shift_;
};

inline bool is_alive(const uint8_t* alive, int64_t i) { return !alive || get_bit(alive, i); }

#if TOPSIGN_X86
// Sixteen bytes from each of two places.
TOPSIGN_AVX2_INLINE __m256i load_two(const uint8_t* low, const uint8_t* high) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}
#endif

}  // namespace topsign
