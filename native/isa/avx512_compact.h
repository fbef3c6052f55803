// Mismatches of one query with codes in the compact layout, 64 bits of the unary part at a time.
#pragma once

#include <immintrin.h>

#include "../core/layout.h"
#include "../kernels/vec.h"

namespace topsign {
namespace {

struct Places {
    alignas(64) uint8_t lane[64] = {};
    constexpr Places() {
        for (int i = 0; i < 64; ++i) lane[i] = uint8_t(i);
    }
};
constexpr Places kPlaces;

// The positions of ones among 64 unary bits are compressed; position minus rank is the high part of a location, which
// indexes one or two bytes of the query.
class CompressCounter {
   public:
    using Table = std::vector<uint8_t>;

    explicit CompressCounter(const Layout& layout)
        : n_bits_(layout.n_bits),
          low_bits_(layout.low_bits),
          high_bytes_(ceil_div(layout.high_size(), 8)),
          sign_bytes_(layout.sign_bytes()),
          low_bytes_(layout.low_bytes()) {
        for (int lane = 0; lane < 64; ++lane) {
            windows_[lane] = uint8_t((lane / 8 * low_bits_ + lane % 8) & 63);
            for (int shift = 0; shift < 8; ++shift) fields_[shift][lane] = uint8_t(shift + lane % 8 * low_bits_);
        }
    }

    static bool serves(const Layout& layout) { return layout.low_bits >= 1 && layout.low_bits <= 4; }

    // Query bits by high part: the lower eight bits of each, then the upper eight; padded by one register.
    static Table table(const Layout& layout, const uint8_t* query) {
        const int64_t stride = stride_of(ceil_div(layout.high_size(), 8));
        Table bytes(2 * stride);
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int64_t high = location >> layout.low_bits, low = location & ((1 << layout.low_bits) - 1);
            bytes[(low >> 3) * stride + high] |= uint8_t(get_bit(query, location) << (low & 7));
        }
        return bytes;
    }

    // Returns false if the code has too few ones. Out of line, because the registers of its loop spill if it is inlined
    // into a scan.
    TOPSIGN_OUTLINE bool count(const uint8_t* code, const Table& table, int32_t& total) const {
        const uint8_t* const lows = code + sign_bytes_;
        const uint8_t* const highs = lows + low_bytes_;
        const uint8_t* const lower = table.data();
        const uint8_t* const upper = lower + stride_of(high_bytes_);
        const __m512i places = load<__m512i>(kPlaces.lane), windows = load<__m512i>(windows_);
        const __m512i low_mask = _mm512_set1_epi8(char((1 << low_bits_) - 1)), by_8 = _mm512_set1_epi8(64);
        const __m512i bit_masks = _mm512_set1_epi64(int64_t(0x8040201008040201u));
        int64_t ones = 0, zeros = 0, mismatches = 0;
        for (int64_t at = 0; at < high_bytes_ && ones < n_bits_; at += 8) {
            uint64_t word = load<uint64_t>(highs + at);
            if (at + 8 > high_bytes_) word = _bzhi_u64(word, uint32_t(8 * (high_bytes_ - at)));
            const int64_t found = _mm_popcnt_u64(word), n = std::min(found, n_bits_ - ones);
            const __m512i high = _mm512_sub_epi8(_mm512_maskz_compress_epi8(word, places), places);
            const int64_t low_at = ones * low_bits_;
            const __m512i window = _mm512_permutexvar_epi8(windows, load<__m512i>(lows + (low_at >> 3)));
            const __m512i low =
                _mm512_and_si512(_mm512_multishift_epi64_epi8(load<__m512i>(fields_[low_at & 7]), window), low_mask);
            const __m512i byte = _mm512_or_si512(high, _mm512_and_si512(_mm512_slli_epi16(low, 3), by_8));
            const __m512i bytes =
                _mm512_permutex2var_epi8(load<__m512i>(lower + zeros), byte, load<__m512i>(upper + zeros));
            const uint64_t bits = _mm512_test_epi8_mask(bytes, _mm512_shuffle_epi8(bit_masks, low));
            mismatches += _mm_popcnt_u64(_bzhi_u64(bits ^ bits_from(code, ones), uint32_t(n)));
            ones += n;
            zeros += 64 - found;
        }
        total = int32_t(mismatches);
        return ones == n_bits_;
    }

   private:
    static int64_t stride_of(int64_t high_bytes) { return 8 * high_bytes + 128; }

    // Loads 64 bits starting at any bit.
    static TOPSIGN_INLINE uint64_t bits_from(const uint8_t* bits, int64_t at) {
        const uint8_t* const byte = bits + (at >> 3);
        const int shift = int(at & 7);
        return load<uint64_t>(byte) >> shift | uint64_t(byte[8]) << 1 << (63 - shift);
    }

    const int64_t n_bits_, low_bits_, high_bytes_, sign_bytes_, low_bytes_;
    alignas(64) uint8_t windows_[64];    // source bytes of eight low parts, for each eight lanes
    alignas(64) uint8_t fields_[8][64];  // offset of each lane's low part, by the offset of the first
};

}  // namespace
}  // namespace topsign
