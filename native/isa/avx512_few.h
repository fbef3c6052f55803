// Mismatches of one query with codes, 64 locations at a time: bits of the query are looked up by locations that are
// expanded to their blocks (fast layout), or by high parts that are compressed out of their unary form (compact
// layout).
#pragma once

#include <immintrin.h>

#include "../core/layout.h"
#include "../kernels/vec.h"

namespace topsign {
namespace {

// Four blocks of up to sixteen locations fill a register, sixteen lanes each. An instruction looks up one of 64 bits
// for each lane: a block has two words, of the lower and of the upper places in a byte.
class ExpandCounter {
   public:
    using Table = std::vector<uint64_t>;

    explicit ExpandCounter(const Layout& layout) : n_bits_(layout.n_bits), n_blocks_(layout.n_blocks()) {}

    static bool serves(const Layout& layout) { return layout.fast(); }

    // For each four blocks the lower words, each twice, then the upper ones.
    static Table table(const Layout& layout, const uint8_t* query) {
        Table words(ceil_div(layout.n_blocks(), kBlocks) * kWords);
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int64_t block = location / kBlockRows, offset = location % kBlockRows;
            const int64_t bit = (offset & 7) << 4 | offset >> 3;  // the order of a location's byte
            uint64_t* const at = &words[block / kBlocks * kWords + (bit >> 6) * 8 + block % kBlocks * 2];
            for (int half = 0; half < 2; ++half) at[half] |= uint64_t(get_bit(query, location)) << (bit & 63);
        }
        return words;
    }

    // False where counts lead out of the code.
    bool count(const uint8_t* code, const Table& table, int32_t& total) const {
        const uint8_t* bytes = code + n_blocks_;
        const uint8_t* const end = bytes + n_bits_;
        const uint64_t* words = table.data();
        int64_t mismatches = 0;
        for (int64_t block = 0; block < n_blocks_; block += 64) {
            const int64_t n = std::min<int64_t>(64, n_blocks_ - block);
            const __m512i counts = _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t(0), uint32_t(n)), code + block);
            alignas(64) uint8_t count_of[64];
            alignas(64) int32_t starts[17];
            _mm512_store_si512(count_of, counts);
            starts[16] = start_groups(counts, starts);
            if (starts[16] > end - bytes) return false;
            uint64_t above_16 = _mm512_cmpgt_epu8_mask(counts, _mm512_set1_epi8(16));
            for (int64_t group = 0; group * kBlocks < n; ++group, words += kWords, above_16 >>= kBlocks)
                mismatches += above_16 & 15
                                  ? count_long(count_of + group * kBlocks, bytes + starts[group], words)
                                  : count_group(present_of(count_of + group * kBlocks), bytes + starts[group], words);
            bytes += starts[16];
        }
        total = int32_t(mismatches);
        return true;
    }

   private:
    static constexpr int64_t kBlocks = 4, kWords = 16;  // of a group, and of its table

    // Where each group of blocks starts; where the last one ends.
    static TOPSIGN_INLINE int32_t start_groups(__m512i counts, int32_t* starts) {
        const __m512i pairs = _mm512_maddubs_epi16(counts, _mm512_set1_epi8(1)), zero = _mm512_setzero_si512();
        const __m512i of_groups = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
        __m512i ends = _mm512_add_epi32(of_groups, _mm512_alignr_epi32(of_groups, zero, 15));
        ends = _mm512_add_epi32(ends, _mm512_alignr_epi32(ends, zero, 14));
        ends = _mm512_add_epi32(ends, _mm512_alignr_epi32(ends, zero, 12));
        ends = _mm512_add_epi32(ends, _mm512_alignr_epi32(ends, zero, 8));
        _mm512_store_si512(starts, _mm512_sub_epi32(ends, of_groups));
        return _mm_extract_epi32(_mm512_extracti32x4_epi32(ends, 3), 3);
    }

    // The first lanes of each block, as many as counted.
    static TOPSIGN_INLINE uint64_t present_of(const uint8_t* counts) {
        const __m512i own = _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                                             0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
        const __m512i lanes =
            _mm512_set_epi64(0x0f0e0d0c0b0a0908, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x0706050403020100,
                             0x0f0e0d0c0b0a0908, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x0706050403020100);
        const __m512i of_lanes = _mm512_shuffle_epi8(_mm512_set1_epi32(load<int32_t>(counts)), own);
        return _mm512_cmpgt_epu8_mask(of_lanes, lanes);
    }

    static TOPSIGN_INLINE int64_t count_group(uint64_t present, const uint8_t* bytes, const uint64_t* words) {
        const __m512i location = _mm512_maskz_expand_epi8(present, load<__m512i>(bytes));
        const uint64_t lower = _mm512_bitshuffle_epi64_mask(load<__m512i>(words), location);
        const uint64_t upper = _mm512_bitshuffle_epi64_mask(load<__m512i>(words + 8), location);
        const uint64_t is_upper = _mm512_test_epi8_mask(location, _mm512_set1_epi8(64));
        const uint64_t positive = _mm512_movepi8_mask(location);
        return int64_t(_mm_popcnt_u64((((lower & ~is_upper) | (upper & is_upper)) ^ positive) & present));
    }

    // A block of the group has more than sixteen locations: one block after another.
    static TOPSIGN_OUTLINE int64_t count_long(const uint8_t* counts, const uint8_t* bytes, const uint64_t* words) {
        int64_t mismatches = 0;
        for (int block = 0; block < kBlocks; ++block)
            for (int left = counts[block]; left > 0; left -= 16) {
                const int n = std::min(left, 16);
                mismatches += count_group(((uint64_t(1) << n) - 1) << 16 * block, bytes, words);
                bytes += n;
            }
        return mismatches;
    }

    const int64_t n_bits_, n_blocks_;
};

struct Places {
    alignas(64) uint8_t lane[64] = {};
    constexpr Places() {
        for (int i = 0; i < 64; ++i) lane[i] = uint8_t(i);
    }
};
constexpr Places kPlaces;

// Of 64 bits of unary high parts the places of ones are compressed; less their number before, they say which byte of
// the query each location has, or which two.
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

    // The lower eight bits of each high part, then the upper ones; as many as there can be zeros, and a register more.
    static Table table(const Layout& layout, const uint8_t* query) {
        const int64_t stride = stride_of(ceil_div(layout.high_size(), 8));
        Table bytes(2 * stride);
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int64_t high = location >> layout.low_bits, low = location & ((1 << layout.low_bits) - 1);
            bytes[(low >> 3) * stride + high] |= uint8_t(get_bit(query, location) << (low & 7));
        }
        return bytes;
    }

    // False where the code has too few ones.
    bool count(const uint8_t* code, const Table& table, int32_t& total) const {
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

    // 64 bits from any one on.
    static TOPSIGN_INLINE uint64_t bits_from(const uint8_t* bits, int64_t at) {
        const uint8_t* const byte = bits + (at >> 3);
        const int shift = int(at & 7);
        return load<uint64_t>(byte) >> shift | uint64_t(byte[8]) << 1 << (63 - shift);
    }

    const int64_t n_bits_, low_bits_, high_bytes_, sign_bytes_, low_bytes_;
    alignas(64) uint8_t windows_[64];    // the bytes that eight low parts lie in, for each eight lanes
    alignas(64) uint8_t fields_[8][64];  // where each lane's low part begins in them, by where the first does
};

}  // namespace
}  // namespace topsign
