// Decoder of the compact layout to blocks of 128 rows, four codes at a time.
#pragma once

#include <immintrin.h>

#include "../core/layout.h"
#include "../kernels/vec.h"
#include "avx512_compact.h"

namespace topsign {
namespace {

// Converts codes of the compact layout to blocks. Each step processes four codes before the next step starts, so that
// its output has left the store buffer when it is read.
class BlockDecoder {
   public:
    static constexpr int64_t kSpare = 64;  // bytes written past the end of a code

    explicit BlockDecoder(const Layout& layout)
        : layout_(layout), high_shift_(7 - layout.low_bits), high_parts_(int64_t(1) << high_shift_) {
        for (int64_t part = 0; part < 64; part += high_parts_) every_high_part_ |= uint64_t(1) << part;
        for (int lane = 0; lane < 64; ++lane) {
            windows_[lane] = uint8_t((lane / 8 * layout.low_bits + lane % 8) & 63);
            fields_[lane] = uint8_t(lane % 8 * layout.low_bits);
        }
        for (Room& room : rooms_) {
            room.ones.resize(64 * ceil_div(layout.high_size(), 64) + 64);
            room.last_zeros.resize(8 * ceil_div(layout.high_size(), 512));
            room.ends.resize(1 + ceil_div(layout.high_size(), high_parts_) + 128, 255);
        }
    }

    static bool serves(const Layout& layout) { return layout.low_bits >= 1 && layout.low_bits <= 7; }

    // Decodes up to four codes; returns a mask of those with the right number of ones.
    int decode(const uint8_t* const* codes, int n, uint8_t* const* out) {
        int sound = 0;
        for (int c = 0; c < n; ++c) sound |= int(find_ones(high_parts_of(codes[c]), rooms_[c])) << c;
        for (int c = 0; c < n; ++c) find_ends(rooms_[c]);
        for (int c = 0; c < n; ++c) write_locations(codes[c], rooms_[c], out[c] + layout_.n_blocks());
        for (int c = 0; c < n; ++c) write_counts(rooms_[c], out[c]);
        return sound;
    }

   private:
    struct Room {
        std::vector<uint8_t> ones,
            ends;  // bit positions in the unary part, modulo 256; `ends` starts at its second byte
        std::vector<uint64_t> last_zeros;  // a bit for each zero that ends a block
    };

    const uint8_t* high_parts_of(const uint8_t* code) const {
        return code + layout_.sign_bytes() + layout_.low_bytes();
    }

    bool find_ones(const uint8_t* highs, Room& room) const {
        const int64_t size = layout_.high_size(), mask = high_parts_ - 1;
        const uint64_t every_high_part = every_high_part_;
        uint8_t* ones = room.ones.data();
        uint64_t* last_zeros = room.last_zeros.data();
        int64_t n_ones = 0;
        __m512i places = load<__m512i>(kPlaces.lane);
        for (int64_t at = 0; at < size; at += 64, places = _mm512_add_epi8(places, _mm512_set1_epi8(64))) {
            uint64_t word = load<uint64_t>(highs + at / 8);
            if (at + 64 > size) word = _bzhi_u64(word, uint32_t(size - at));
            *last_zeros++ = _pdep_u64(every_high_part << ((n_ones - at - 1) & mask), ~word);
            store(ones + n_ones, _mm512_maskz_compress_epi8(word, places));
            n_ones += _mm_popcnt_u64(word);
        }
        return n_ones == layout_.n_bits;
    }

    void find_ends(Room& room) const {
        find_zeros(room);
        const int64_t n_blocks = layout_.n_blocks();
        room.ends[n_blocks] = uint8_t(layout_.n_bits + n_blocks * high_parts_ - 1);  // past the last bit
    }

    void find_zeros(Room& room) const {
        uint8_t* ends = room.ends.data() + 1;
        if (high_parts_ < 8) {
            __m512i places = load<__m512i>(kPlaces.lane);
            for (const uint64_t word : room.last_zeros) {
                store(ends, _mm512_maskz_compress_epi8(word, places));
                ends += _mm_popcnt_u64(word);
                places = _mm512_add_epi8(places, _mm512_set1_epi8(64));
            }
            return;
        }
        // At most one bit per byte is set; a bit-matrix product converts it to its position.
        const __m512i to_place =
            _mm512_set1_epi64(int64_t(uint64_t(0xaa) << 56 | uint64_t(0xcc) << 48 | uint64_t(0xf0) << 40));
        const __m512i first =
            _mm512_and_si512(_mm512_slli_epi16(load<__m512i>(kPlaces.lane), 3), _mm512_set1_epi8(char(0xf8)));
        for (size_t w = 0; w < room.last_zeros.size(); w += 8) {
            const __m512i bytes = load<__m512i>(&room.last_zeros[w]);
            const __mmask64 here = _mm512_test_epi8_mask(bytes, bytes);
            const __m512i place = _mm512_add_epi8(first, _mm512_gf2p8affine_epi64_epi8(bytes, to_place, 0));
            store(ends, _mm512_maskz_compress_epi8(here, place));
            ends += _mm_popcnt_u64(here);
        }
    }

    // A block ends with the last zero of its high parts, so the distance between two such zeros is the number of its
    // locations plus its number of high parts.
    void write_counts(const Room& room, uint8_t* out) const {
        const int64_t n_blocks = layout_.n_blocks();
        const uint8_t* const ends = room.ends.data() + 1;
        const __m512i zeros = _mm512_set1_epi8(char(high_parts_));
        for (int64_t b = 0; b < n_blocks; b += 64) {
            const __m512i between = _mm512_sub_epi8(load<__m512i>(ends + b), load<__m512i>(ends + b - 1));
            const __m512i counts = _mm512_sub_epi8(between, zeros);
            if (n_blocks - b >= 64)
                store(out + b, counts);
            else
                _mm512_mask_storeu_epi8(out + b, _bzhi_u64(~uint64_t(0), uint32_t(n_blocks - b)), counts);
        }
    }

    void write_locations(const uint8_t* code, const Room& room, uint8_t* out) const {
        constexpr int kSelect = 0xca;  // selects bits of two operands by the first
        // The offset in a block is high << low_bits | low; the location byte stores its lowest three bits above the
        // rest.
        const __m512i to_byte = _mm512_set1_epi64(kToByte);
        const __m512i places = load<__m512i>(kPlaces.lane), windows = load<__m512i>(windows_);
        const __m512i fields = load<__m512i>(fields_), low_mask = _mm512_set1_epi8(char((1 << layout_.low_bits) - 1));
        const __m128i shift = _mm_cvtsi32_si128(int(layout_.low_bits));
        const uint8_t* const lows = code + layout_.sign_bytes();
        const uint8_t* const ones = room.ones.data();
        const int64_t n_bits = layout_.n_bits, low_bits = layout_.low_bits;
        for (int64_t i = 0; i < n_bits; i += 64) {
            const __m512i high = _mm512_sub_epi8(load<__m512i>(ones + i), places);
            const __m512i window = _mm512_permutexvar_epi8(windows, load<__m512i>(lows + i / 8 * low_bits));
            const __m512i low = _mm512_multishift_epi64_epi8(fields, window);
            const __m512i offset = _mm512_ternarylogic_epi64(low_mask, low, _mm512_sll_epi16(high, shift), kSelect);
            const __m512i byte = _mm512_gf2p8affine_epi64_epi8(offset, to_byte, 0);
            const __mmask64 positive = load<uint64_t>(code + i / 8);
            store(out + i, _mm512_mask_add_epi8(byte, positive, byte, _mm512_set1_epi8(char(128))));
        }
    }

    // Bit matrix that permutes the bits of an offset; row i is byte 7 - i.
    static constexpr int64_t kToByte =
        int64_t(uint64_t(0x08) << 56 | uint64_t(0x10) << 48 | uint64_t(0x20) << 40 | uint64_t(0x40) << 32 |
                uint64_t(0x01) << 24 | uint64_t(0x02) << 16 | uint64_t(0x04) << 8);

    const Layout layout_;
    const int64_t high_shift_, high_parts_;  // base-2 logarithm of the high parts per block, and their number
    uint64_t every_high_part_ = 0;           // bit of the first high part of every block
    Room rooms_[4];
    alignas(64) uint8_t windows_[64];  // source bytes of eight low parts, for each eight lanes
    alignas(64) uint8_t fields_[64];   // offset of each lane's low part
};

}  // namespace
}  // namespace topsign
