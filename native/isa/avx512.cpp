// AVX-512 with BW, DQ, VL, VBMI, VBMI2 and VNNI: x86-64 processors since 2019 (Ice Lake) and 2022 (Zen 4).
#include "../core/target.h"

#if TOPSIGN_X86
#include <immintrin.h>

#include <memory>

#include "../core/all.h"
#include "functions.h"

namespace {

bool runs_here() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt");
}

}  // namespace

TOPSIGN_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vnni,avx2,f16c,bmi,bmi2,popcnt")

#include "../kernels/functions.h"
#include "avx2.h"

namespace topsign {
namespace {

// Sums of nibble tables. Four planes of 16 codes, the even or the odd ones of a block, fill a register; four tables of
// 16 entries fill another, so one instruction looks up 64 nibbles, and another adds the four of each code.
class WideNibbles {
   public:
    static constexpr int kTile = 2, kQueries = 2;

    static int64_t table_bytes(int64_t n_bytes) { return ceil_div(n_bytes, 4) * 128; }
    static void lay_out(const int8_t* tables, int64_t n_bytes, uint8_t* out) {
        std::memset(out, 0, size_t(table_bytes(n_bytes)));  // of planes after the last, too
        for (int64_t p = 0; p < n_bytes; ++p)
            for (int half = 0; half < 2; ++half)
                std::memcpy(out + (p / 4 * 2 + half) * 64 + p % 4 * 16, tables + (2 * p + half) * 16, 16);
    }

    void enter(const uint8_t* const* blocks, const uint8_t* const* ahead, int64_t n_bytes) {
        n_steps_ = ceil_div(n_bytes, 4);
        if (int64_t(codes_.size()) < 256 * n_steps_ + 64) codes_.resize(256 * n_steps_ + 64);
        alignas(64) uint8_t order[2][64];
        for (int i = 0; i < 64; ++i)
            for (int odd = 0; odd < 2; ++odd) order[odd][i] = uint8_t(i % 4 * 32 + i / 4 * 2 + odd);
        const __m512i even = load<__m512i>(order[0]), odd = load<__m512i>(order[1]);
        for (int b = 0; b < kTile; ++b) {
            const uint8_t *at = blocks[b], *next = ahead[b];
            uint8_t* to = aligned() + 128 * b;
            const auto arrange = [&](const uint8_t* planes) {
                const __m512i low = load<__m512i>(planes), high = load<__m512i>(planes + 64);
                store(to, _mm512_permutex2var_epi8(low, even, high));
                store(to + 64, _mm512_permutex2var_epi8(low, odd, high));
            };
            for (int64_t step = 0; step < n_bytes / 4; ++step, at += 128, next += 128, to += 256) {
                _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
                _mm_prefetch(reinterpret_cast<const char*>(next + 64), _MM_HINT_T1);
                arrange(at);
            }
            if (n_bytes % 4) {
                alignas(64) uint8_t last[128] = {};
                std::memcpy(last, at, size_t(n_bytes % 4) * kBlock);
                arrange(last);
            }
        }
    }

    template <int N>
    void sums(const uint8_t* const* tables, int32_t (*out)[kTile][kBlock]) const {
        constexpr int kParts = 2 * kTile;  // of 16 codes
        const __m512i fifteen = _mm512_set1_epi8(15), table_of = _mm512_set1_epi32(0x30201000),
                      ones = _mm512_set1_epi8(1);
        __m512i sums[N][kParts];
        for (int q = 0; q < N; ++q)
            for (int c = 0; c < kParts; ++c) sums[q][c] = _mm512_setzero_si512();
        const uint8_t* codes = aligned();
        for (int64_t step = 0; step < n_steps_; ++step, codes += 256) {
            __m512i low[N], high[N];
            for (int q = 0; q < N; ++q) {
                low[q] = load<__m512i>(tables[q] + 128 * step);
                high[q] = load<__m512i>(tables[q] + 128 * step + 64);
            }
#pragma GCC unroll 4
            for (int c = 0; c < kParts; ++c) {
                const __m512i some = load<__m512i>(codes + 64 * c);
                const __m512i first = _mm512_ternarylogic_epi32(some, fifteen, table_of, 0xEA);  // (a & b) | c
                const __m512i second = _mm512_ternarylogic_epi32(_mm512_srli_epi16(some, 4), fifteen, table_of, 0xEA);
                for (int q = 0; q < N; ++q) {
                    sums[q][c] = _mm512_dpbusd_epi32(sums[q][c], ones, _mm512_permutexvar_epi8(first, low[q]));
                    sums[q][c] = _mm512_dpbusd_epi32(sums[q][c], ones, _mm512_permutexvar_epi8(second, high[q]));
                }
            }
        }
        for (int q = 0; q < N; ++q)
            for (int c = 0; c < kParts; ++c) store(out[q][c / 2] + c % 2 * 16, sums[q][c]);
    }

   private:
    uint8_t* aligned() { return const_cast<uint8_t*>(std::as_const(*this).aligned()); }
    const uint8_t* aligned() const {
        return codes_.data() + (64 - reinterpret_cast<uintptr_t>(codes_.data()) % 64) % 64;
    }

    int64_t n_steps_ = 0;
    std::vector<uint8_t> codes_{};
};

// Sums of byte tables along the rings of eight blocks, whose tables stay in registers.
struct WideRings {
    static constexpr int kTile = 8, kAhead = 2;
    static constexpr bool kNarrow = true;

    static void sums(const uint8_t* const* blocks, const uint8_t* const* ahead, int64_t n_bytes, const uint8_t* tables,
                     int32_t (*out)[kBlock]) {
        constexpr int64_t kPlanes = 256;  // whose values fit 16 bits
        __m512i before[kVectors], even[kVectors], odd[kVectors];
        for (int v = 0; v < kVectors; ++v) before[v] = two(blocks + 2 * v, n_bytes - 1);
        for (int64_t begin = 0; begin < n_bytes; begin += kPlanes) {
            add_planes(blocks, ahead, begin, std::min(n_bytes, begin + kPlanes), tables, before, even, odd);
            for (int v = 0; v < kVectors; ++v) {
                add(out[2 * v], even[v], odd[v], 0, begin > 0);
                add(out[2 * v + 1], even[v], odd[v], 1, begin > 0);
            }
        }
    }

    // The codes of each block whose sums exceed a bound, and those with a small factor; factors is the plane of their
    // high bytes, or -1. Writes the sums of pairs of blocks with such codes: those of even codes, then those of odd
    // ones.
    static void reaching(const uint8_t* const* blocks, const uint8_t* const* ahead, int64_t n_bytes,
                         const uint8_t* tables, NarrowBound bound, int64_t factors, uint32_t* lanes,
                         uint16_t (*sums)[kBlock]) {
        __m512i before[kVectors], even[kVectors], odd[kVectors];
        for (int v = 0; v < kVectors; ++v) before[v] = two(blocks + 2 * v, n_bytes - 1);
        add_planes(blocks, ahead, 0, n_bytes, tables, before, even, odd);
        const __m512i first = _mm512_set1_epi16(bound.first), slope = _mm512_set1_epi16(bound.slope);
        for (int i = 0; i < kTile && factors >= 0; ++i)
            _mm_prefetch(reinterpret_cast<const char*>(ahead[i] + factors * kBlock), _MM_HINT_T1);
        for (int v = 0; v < kVectors; ++v) {
            __m512i even_bound = first, odd_bound = first;
            uint64_t reached = 0;
            if (factors >= 0) {
                const __m512i high = two(blocks + 2 * v, factors);
                const __m512i of_even = _mm512_srli_epi16(_mm512_slli_epi16(high, 8), 1);  // times 128
                const __m512i of_odd = _mm512_srli_epi16(_mm512_and_si512(high, _mm512_set1_epi16(int16_t(0xff00))), 1);
                even_bound = _mm512_adds_epi16(first, _mm512_mulhi_epi16(of_even, slope));
                odd_bound = _mm512_adds_epi16(first, _mm512_mulhi_epi16(of_odd, slope));
                reached = _mm512_testn_epi8_mask(high, high);
            }
            reached |= _pdep_u64(_mm512_cmpgt_epi16_mask(even[v], even_bound), 0x5555555555555555);
            reached |= _pdep_u64(_mm512_cmpgt_epi16_mask(odd[v], odd_bound), 0xaaaaaaaaaaaaaaaa);
            lanes[2 * v] = uint32_t(reached);
            lanes[2 * v + 1] = uint32_t(reached >> 32);
            if (!reached) continue;
            store(sums[2 * v], even[v]);
            store(sums[2 * v + 1], odd[v]);
        }
    }
    static int32_t sum_of(const uint16_t (*sums)[kBlock], int64_t block, int lane) {
        return sums[(block & ~int64_t(1)) + (lane & 1)][(block & 1) * (kBlock / 2) + lane / 2];
    }

   private:
    static constexpr int kVectors = kTile / 2;

    // Sums of the planes [begin, end), at most 256.
    static TOPSIGN_INLINE void add_planes(const uint8_t* const* blocks, const uint8_t* const* ahead, int64_t begin,
                                          int64_t end, const uint8_t* tables, __m512i (&before)[kVectors],
                                          __m512i (&even)[kVectors], __m512i (&odd)[kVectors]) {
        const __m512i high_bits = _mm512_set1_epi8(char(0xf0)), low_byte = _mm512_set1_epi16(255);
        for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = _mm512_setzero_si512();
        for (int64_t p = begin; p < end; ++p) {
            for (int i = 0; i < kTile; i += 2)  // a line of every other block
                _mm_prefetch(reinterpret_cast<const char*>(ahead[i + (p & 1)] + (p >> 1) * 64), _MM_HINT_T1);
            const Table low(tables + 512 * p), high(tables + 512 * p + 256);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                const __m512i codes = two(blocks + 2 * v, p);
                const __m512i window = _mm512_ternarylogic_epi32(high_bits, _mm512_slli_epi16(before[v], 4),
                                                                 _mm512_srli_epi16(codes, 4), 0xCA);  // a ? b : c
                const __m512i both = _mm512_add_epi8(low.look_up(window), high.look_up(codes));
                even[v] = _mm512_add_epi16(even[v], _mm512_and_si512(both, low_byte));
                odd[v] = _mm512_add_epi16(odd[v], _mm512_srli_epi16(both, 8));
                before[v] = codes;
            }
        }
    }

    struct Table {
        explicit Table(const uint8_t* at)
            : part{load<__m512i>(at), load<__m512i>(at + 64), load<__m512i>(at + 128), load<__m512i>(at + 192)} {}
        TOPSIGN_INLINE __m512i look_up(__m512i index) const {
            const __m512i low = _mm512_permutex2var_epi8(part[0], index, part[1]);
            const __m512i high = _mm512_permutex2var_epi8(part[2], index, part[3]);
            return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
        }
        __m512i part[4];
    };

    // A plane of two blocks.
    static TOPSIGN_INLINE __m512i two(const uint8_t* const* blocks, int64_t plane) {
        const __m512i first = _mm512_castsi256_si512(load<__m256i>(blocks[0] + plane * kBlock));
        return _mm512_inserti64x4(first, load<__m256i>(blocks[1] + plane * kBlock), 1);
    }

    static TOPSIGN_INLINE void add(int32_t* out, __m512i even, __m512i odd, int half, bool more) {
        const __m256i parts[2] = {half ? _mm512_extracti64x4_epi64(even, 1) : _mm512_castsi512_si256(even),
                                  half ? _mm512_extracti64x4_epi64(odd, 1) : _mm512_castsi512_si256(odd)};
        for (int i = 0; i < 2; ++i) {
            const __m512i sums = _mm512_cvtepu16_epi32(parts[i]);
            store(out + 16 * i, more ? _mm512_add_epi32(sums, load<__m512i>(out + 16 * i)) : sums);
        }
    }
};

struct Avx512 : Avx2Of<Avx512, 64> {
    using Nibbles = WideNibbles;
    using Rings = WideRings;
    static constexpr int64_t kFewRings = 1 << 20;
    static constexpr int kProductQueries = 4;
    static constexpr double kRingCost = 0.9, kProductCost = 0.1;

    static constexpr int64_t kCompressed = 16;
    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        const __m512i value = _mm512_and_si512(load<__m512i>(y), _mm512_set1_epi32(kMagnitude));
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __mmask16 taken = _mm512_cmpge_epi32_mask(value, _mm512_set1_epi32(floor));
        store(magnitudes, _mm512_maskz_compress_epi32(taken, value));
        store(rows, _mm512_maskz_compress_epi32(taken, _mm512_add_epi32(_mm512_set1_epi32(row), lanes)));
        return _mm_popcnt_u32(taken);
    }

    static TOPSIGN_INLINE int64_t compress_rows(const int32_t* magnitudes, const int32_t* rows, int32_t least,
                                                int32_t* kept) {
        const __mmask16 taken = _mm512_cmpge_epi32_mask(load<__m512i>(magnitudes), _mm512_set1_epi32(least));
        store(kept, _mm512_maskz_compress_epi32(taken, load<__m512i>(rows)));
        return _mm_popcnt_u32(taken);
    }

    template <class To, class From>
    static TOPSIGN_INLINE To widen(From values) {
        return cast<To>(_mm512_cvtps_pd(cast<__m256>(values)));
    }

    static TOPSIGN_INLINE Ints to_ints(const int8_t* levels) {
        return cast<Ints>(_mm512_cvtepi8_epi32(_mm_loadu_si128(as_128(levels))));
    }
    static TOPSIGN_INLINE void narrow(Ints values, uint8_t* to) {
        store(to, _mm512_cvtepi32_epi8(cast<__m512i>(values)));
    }

    // The instruction multiplies unsigned bytes.
    static constexpr int32_t kBias = 128;
    static TOPSIGN_INLINE V biased(V levels) { return levels ^ splat<V>(128); }
    static TOPSIGN_INLINE Ints add_byte_products(Ints sum, V levels, Ints values) {
        return cast<Ints>(_mm512_dpbusd_epi32(cast<__m512i>(sum), cast<__m512i>(levels), cast<__m512i>(values)));
    }
};

constexpr Functions kTable = functions_of<Avx512>("avx512", runs_here);

}  // namespace
}  // namespace topsign

TOPSIGN_TARGET_END

const topsign::Functions topsign::kAvx512 = kTable;
#endif
