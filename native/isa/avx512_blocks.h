// Comparison of four codes at a time, in blocks of 128 rows: one instruction looks up 64 locations in the values of a
// query for the block, or in the bits of eight queries.
#pragma once

#include <immintrin.h>

#include "../core/layout.h"
#include "../kernels/vec.h"
#include "avx512_compact.h"
#include "avx512_pairs.h"

namespace topsign {
namespace {

// Up to sixteen locations of each of four codes, one code per quarter of the register; `present` masks valid lanes.
struct Locations {
    __m512i bytes;
    __mmask64 present;
};

// Location counts of four codes in up to 64 blocks.
class FourCounts {
   public:
    static constexpr int64_t kBlocks = 64;

    // Reads the counts of blocks [first, first + kBlocks); counts past the last block are zero.
    TOPSIGN_INLINE void read(const uint8_t* const (&codes)[4], int64_t first, int64_t n_blocks) {
        const __mmask64 exist = _bzhi_u64(~uint64_t(0), uint32_t(std::min(kBlocks, n_blocks - first)));
        __m512i counts[4];
        for (int c = 0; c < 4; ++c) counts[c] = _mm512_maskz_loadu_epi8(exist, codes[c] + first);
        const __m512i low_01 = _mm512_unpacklo_epi8(counts[0], counts[1]);
        const __m512i high_01 = _mm512_unpackhi_epi8(counts[0], counts[1]);
        const __m512i low_23 = _mm512_unpacklo_epi8(counts[2], counts[3]);
        const __m512i high_23 = _mm512_unpackhi_epi8(counts[2], counts[3]);
        const __m512i four[4] = {_mm512_unpacklo_epi16(low_01, low_23), _mm512_unpackhi_epi16(low_01, low_23),
                                 _mm512_unpacklo_epi16(high_01, high_23), _mm512_unpackhi_epi16(high_01, high_23)};
        for (int part = 0; part < 4; ++part) {  // each holds four blocks of every sixteen
            _mm_store_si128(quarter(part), _mm512_castsi512_si128(four[part]));
            _mm_store_si128(quarter(4 + part), _mm512_extracti32x4_epi32(four[part], 1));
            _mm_store_si128(quarter(8 + part), _mm512_extracti32x4_epi32(four[part], 2));
            _mm_store_si128(quarter(12 + part), _mm512_extracti32x4_epi32(four[part], 3));
        }
    }

    // Counts in one block, one byte per code.
    TOPSIGN_INLINE uint32_t operator[](int64_t block) const { return counts_[block]; }

   private:
    TOPSIGN_INLINE __m128i* quarter(int i) { return reinterpret_cast<__m128i*>(counts_ + 4 * i); }

    alignas(64) uint32_t counts_[kBlocks];
};

// Positions in the locations of four codes, which are read block by block.
class FourCursors {
   public:
    FourCursors() = default;
    TOPSIGN_INLINE FourCursors(const uint8_t* const (&codes)[4], int64_t n_blocks)
        : at_0_(codes[0] + n_blocks),
          at_1_(codes[1] + n_blocks),
          at_2_(codes[2] + n_blocks),
          at_3_(codes[3] + n_blocks) {}

    // Returns the locations of the next block, at most sixteen per code.
    TOPSIGN_INLINE Locations next(uint32_t counts) {
        const Locations locations{load_parts(at_0_, at_1_, at_2_, at_3_), present_of(counts, slots())};
        at_0_ += counts & 255;
        at_1_ += counts >> 8 & 255;
        at_2_ += counts >> 16 & 255;
        at_3_ += counts >> 24;
        __asm__("" : "+r"(at_0_), "+r"(at_1_), "+r"(at_2_), "+r"(at_3_));  // otherwise GCC keeps them in a vector
        return locations;
    }

    // Whether any count exceeds sixteen; counts of valid codes are at most 128.
    static TOPSIGN_INLINE bool has_more(uint32_t counts) { return (counts + 0x6f6f6f6fu) & 0x80808080u; }

    // Locations beyond the first sixteen of the block read last.
    struct More {
        const uint8_t* at[4];
        uint32_t counts;

        // Calls add(locations) for every further sixteen locations.
        template <class Add>
        TOPSIGN_INLINE void visit(const Add& add) const {
            int most = 0;
            for (int c = 0; c < 4; ++c) most = std::max(most, int(counts >> 8 * c & 255));
            __m512i slot = slots();
            for (int past = 16; past < most; past += 16) {
                slot = _mm512_add_epi8(slot, _mm512_set1_epi8(16));
                const uint8_t* from[4];
                for (int c = 0; c < 4; ++c) from[c] = at[c] + std::min(past, int(counts >> 8 * c & 255));
                add(Locations{load_parts(from[0], from[1], from[2], from[3]), present_of(counts, slot)});
            }
        }
    };

    TOPSIGN_INLINE More more(uint32_t counts) const {
        return {
            {at_0_ - (counts & 255), at_1_ - (counts >> 8 & 255), at_2_ - (counts >> 16 & 255), at_3_ - (counts >> 24)},
            counts};
    }

   private:
    static TOPSIGN_INLINE __m512i slots() {
        return _mm512_set_epi64(0x0f0e0d0c0b0a0908, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x0706050403020100,
                                0x0f0e0d0c0b0a0908, 0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x0706050403020100);
    }

    static TOPSIGN_INLINE __mmask64 present_of(uint32_t counts, __m512i slots) {
        const __m512i own = _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                                             0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
        return _mm512_cmplt_epu8_mask(slots, _mm512_shuffle_epi8(_mm512_set1_epi32(int(counts)), own));
    }

    static TOPSIGN_INLINE __m512i load_parts(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
        __m512i parts = _mm512_castsi128_si512(load<__m128i>(a));
        parts = _mm512_inserti32x4(parts, load<__m128i>(b), 1);
        parts = _mm512_inserti32x4(parts, load<__m128i>(c), 2);
        return _mm512_inserti32x4(parts, load<__m128i>(d), 3);
    }

    const uint8_t *at_0_, *at_1_, *at_2_, *at_3_;
};

// Prefetch of the next codes, a cache line per block: the hardware does not follow four codes at a time.
struct Ahead {
    const uint8_t* at;
    int64_t step;  // bytes from block to block

    TOPSIGN_INLINE void prefetch() {
        _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
        at += step;
    }
};

// Sums of rounded values. The table has 128 unsigned bytes per block and query, the values plus 128.
struct ValueBlocks {
    static constexpr int64_t kBytes = kBlockRows;

    // Adds N queries, whose tables lie side by side for each block, to up to F fours of codes:
    // totals[four][query][code] with `stride` queries per four. The fours take turns of some blocks, so that the tables
    // of these blocks are read from the first-level cache. Out of line, because registers spill if it is inlined into a
    // scan.
    template <int N, int F>
    static TOPSIGN_OUTLINE void add(const uint8_t* const (*codes)[4], int64_t n_fours, int64_t n_blocks,
                                    const uint8_t* table, Ahead& ahead, int32_t (*totals)[4], int64_t stride) {
        constexpr int64_t kTurn = F == 1 ? FourCounts::kBlocks : 8;
        FourCounts counts[F];
        FourCursors cursors[F];
        Sums<N> sums[F], more[F];
        for (int64_t f = 0; f < n_fours; ++f) cursors[f] = FourCursors(codes[f], n_blocks);
        for (int64_t first = 0; first < n_blocks; first += FourCounts::kBlocks) {
            for (int64_t f = 0; f < n_fours; ++f) counts[f].read(codes[f], first, n_blocks);
            const int64_t end = std::min(FourCounts::kBlocks, n_blocks - first);
            for (int64_t b = 0; b < end; b += kTurn) {
                const int64_t n = std::min(kTurn, end - b);
                for (int64_t f = 0; f < n_fours; ++f)
                    add_turn<N>(counts[f], b, b + n, table, ahead, cursors[f], sums[f], more[f]);
                table += n * N * kBytes;
            }
        }
        for (int64_t f = 0; f < n_fours; ++f) sums[f].write(more[f], totals + f * stride);
    }

   private:
    // The signs, +1 or -1, from which the bias of 128 is computed.
    template <int N, class = void>
    struct Sums : Sums<N - 1> {
        __m512i sum{};

        TOPSIGN_INLINE void add_block(const Locations& here, const uint8_t* table) {
            const __m512i one = _mm512_set1_epi8(1);
            const __m512i unless_positive = _mm512_shuffle_epi8(_mm512_set1_epi8(-2), here.bytes);  // 0 if bit 7 is set
            add(here.bytes, _mm512_maskz_add_epi8(here.present, unless_positive, one), table);
        }

        TOPSIGN_INLINE void write(const Sums& more, int32_t (*totals)[4]) const {
            const __m512i offset = _mm512_slli_epi32(_mm512_add_epi32(this->signs, more.signs), 7);
            this->write_less(more, offset, totals);
        }

        TOPSIGN_INLINE void add(__m512i locations, __m512i sign, const uint8_t* table) {
            Sums<N - 1>::add(locations, sign, table);
            const uint8_t* const values = table + (N - 1) * kBytes;
            const __m512i found =
                _mm512_permutex2var_epi8(load<__m512i>(values), locations, load<__m512i>(values + 64));
            sum = _mm512_dpbusd_epi32(sum, found, sign);
        }

        TOPSIGN_INLINE void write_less(const Sums& more, __m512i offset, int32_t (*totals)[4]) const {
            Sums<N - 1>::write_less(more, offset, totals);
            store(totals[N - 1], sum_quarters(_mm512_sub_epi32(_mm512_add_epi32(sum, more.sum), offset)));
        }
    };
    template <class None>
    struct Sums<0, None> {
        __m512i signs{};

        TOPSIGN_INLINE void add(__m512i, __m512i sign, const uint8_t*) {
            signs = _mm512_dpbusd_epi32(signs, _mm512_set1_epi8(1), sign);
        }
        TOPSIGN_INLINE void write_less(const Sums&, __m512i, int32_t (*)[4]) const {}
    };

    // Adds blocks [begin, end) of a chunk, with everything in registers.
    template <int N>
    static TOPSIGN_INLINE void add_turn(const FourCounts& counts, int64_t begin, int64_t end, const uint8_t* table,
                                        Ahead& ahead, FourCursors& cursors, Sums<N>& sums, Sums<N>& more) {
        Ahead next = ahead;
        FourCursors here = cursors;
        Sums<N> sum = sums;
        for (int64_t b = begin; b < end; ++b, table += N * kBytes) {
            next.prefetch();
            sum.add_block(here.next(counts[b]), table);
            if (__builtin_expect(FourCursors::has_more(counts[b]), 0)) add_more(here.more(counts[b]), table, more);
        }
        ahead = next;
        cursors = here;
        sums = sum;
    }

    // Out of line, because blocks of more than sixteen locations are rare.
    template <int N>
    static TOPSIGN_OUTLINE void add_more(const FourCursors::More& more, const uint8_t* table, Sums<N>& sums) {
        more.visit([&](const Locations& here) { sums.add_block(here, table); });
    }

    static TOPSIGN_INLINE __m128i sum_quarters(__m512i sums) {
        sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
        sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
        return _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, sums));
    }
};

// Mismatch counts. The table has 128 bytes per block and eight queries, one bit per query.
struct BitBlocks {
    static constexpr int64_t kBytes = kBlockRows, kQueries = 8;
    static constexpr int64_t kStep = 8;  // blocks counted together; tables are padded to a multiple

    // Counts mismatches of G groups of eight queries, whose tables are adjacent for each block:
    // counts[group][code][query].
    template <int G>
    static TOPSIGN_OUTLINE void count(const uint8_t* const (&codes)[4], int64_t n_blocks, const uint8_t* table,
                                      Ahead& ahead, int32_t (*counts)[4][kQueries]) {
        FourCounts numbers;
        FourCursors cursors(codes, n_blocks);
        std::fill_n(&counts[0][0][0], G * 4 * kQueries, 0);
        for (int64_t first = 0; first < n_blocks; first += FourCounts::kBlocks) {
            numbers.read(codes, first, n_blocks);
            Counter<G> counter{numbers, cursors, ahead, table, counts, {}};
            for (auto& planes : counter.planes)
                for (__m512i& plane : planes) plane = _mm512_setzero_si512();
            const int64_t n = std::min(FourCounts::kBlocks, n_blocks - first);
            for (int64_t b = 0; b < n; b += kStep) counter.template add<kStep>(b);
            for (int g = 0; g < G; ++g) add_counts(counter.planes[g], kPlanes, counts[g]);
            table += G * kBytes * FourCounts::kBlocks;
        }
    }

   private:
    static constexpr int kPlanes = 7, kLowest = 3;  // planes for 64 blocks; planes for the eight blocks of a step

    template <int G>
    struct Differing {
        __m512i bits[G];
    };

    // Full adder: updates the sum and returns the carry.
    static TOPSIGN_INLINE __m512i add_bits(__m512i& sum, __m512i a, __m512i b) {
        using Words = Vec<uint64_t, 8>;
        auto words = cast<Words>(sum);
        const Words carry = PlainPair<Words>::of(cast<Words>(a), cast<Words>(b)).add_to(words);
        sum = cast<__m512i>(words);
        return cast<__m512i>(carry);
    }

    // Bits that differ from the signs of the codes.
    template <int G>
    static TOPSIGN_INLINE Differing<G> compare(const Locations& here, const uint8_t* table) {
        constexpr int kEqual = 0xc3;
        const __m512i ones = _mm512_set1_epi8(-1);
        const __m512i negative = _mm512_mask_shuffle_epi8(ones, here.present, ones, here.bytes);  // 0 if bit 7 is set
        Differing<G> found;
        for (int g = 0; g < G; ++g) {
            const uint8_t* const bits = table + g * kBytes;
            const __m512i looked_up =
                _mm512_maskz_permutex2var_epi8(here.present, load<__m512i>(bits), here.bytes, load<__m512i>(bits + 64));
            found.bits[g] = _mm512_ternarylogic_epi64(looked_up, negative, negative, kEqual);
        }
        return found;
    }

    // Vertical counters: bits of blocks are added into planes, the binary digits of one counter per bit lane.
    template <int G>
    struct Counter {
        const FourCounts& numbers;
        FourCursors& cursors;
        Ahead& ahead;
        const uint8_t* const table;
        int32_t (*const counts)[4][kQueries];
        __m512i planes[G][kPlanes];

        template <int Blocks>
        TOPSIGN_INLINE void add(int64_t block) {
            const Differing<G> carry = sum<Blocks>(block);
            for (int g = 0; g < G; ++g) {
                __m512i up = carry.bits[g];
                for (int p = kLowest; p < kPlanes; ++p) {
                    const __m512i next = _mm512_and_si512(planes[g][p], up);
                    planes[g][p] = _mm512_xor_si512(planes[g][p], up);
                    up = next;
                }
            }
        }

        // Adds blocks into the lowest planes and returns the carry.
        template <int Blocks>
        TOPSIGN_INLINE Differing<G> sum(int64_t block) {
            if constexpr (Blocks == 1) {
                const uint8_t* const bits = table + block * G * kBytes;
                const uint32_t n = numbers[block];
                ahead.prefetch();
                const Differing<G> found = compare<G>(cursors.next(n), bits);
                if (__builtin_expect(FourCursors::has_more(n), 0)) add_more<G>(cursors.more(n), bits, counts);
                return found;
            } else {
                constexpr int kLevel = Blocks == 2 ? 0 : Blocks == 4 ? 1 : 2;
                const Differing<G> a = sum<Blocks / 2>(block), b = sum<Blocks / 2>(block + Blocks / 2);
                Differing<G> carry;
                for (int g = 0; g < G; ++g) carry.bits[g] = add_bits(planes[g][kLevel], a.bits[g], b.bits[g]);
                return carry;
            }
        }
    };

    template <int G>
    static TOPSIGN_OUTLINE void add_more(const FourCursors::More& more, const uint8_t* table,
                                         int32_t (*counts)[4][kQueries]) {
        more.visit([&](const Locations& here) {
            const Differing<G> found = compare<G>(here, table);
            for (int g = 0; g < G; ++g) add_counts(&found.bits[g], 1, counts[g]);
        });
    }

    // Adds the counters of the sixteen lanes of each code. Eight lanes of eight queries are transposed to one byte per
    // query, whose ones are counted and weighted by plane.
    static TOPSIGN_INLINE void add_counts(const __m512i* planes, int n_planes, int32_t (*counts)[kQueries]) {
        const auto ones = [&](int begin, int end) {  // at most 16 * 15 per byte
            __m512i sum{};
            for (int p = end - 1; p >= begin; --p) {
                const __m512i of_queries =
                    _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(int64_t(0x8040201008040201u)), planes[p], 0);
                sum = _mm512_add_epi8(_mm512_add_epi8(sum, sum), _mm512_popcnt_epi8(of_queries));
            }
            return _mm512_add_epi8(sum, _mm512_unpackhi_epi64(sum, sum));
        };
        const int middle = std::min(n_planes, 4);
        const __m512i low = ones(0, middle), high = ones(middle, n_planes);
        const __m512i to_front = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
        const __m256i lows = _mm512_castsi512_si256(_mm512_permutexvar_epi64(to_front, low));
        const __m256i highs = _mm512_castsi512_si256(_mm512_permutexvar_epi64(to_front, high));
        const auto add = [&](int code, __m128i low_16, __m128i high_16) {
            const __m512i both =
                _mm512_add_epi32(_mm512_cvtepu8_epi32(low_16), _mm512_slli_epi32(_mm512_cvtepu8_epi32(high_16), 4));
            store(counts[code], _mm512_add_epi32(load<__m512i>(counts[code]), both));
        };
        add(0, _mm256_castsi256_si128(lows), _mm256_castsi256_si128(highs));
        add(2, _mm256_extracti128_si256(lows, 1), _mm256_extracti128_si256(highs, 1));
    }
};

}  // namespace
}  // namespace topsign
