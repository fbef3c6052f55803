// AVX-512 with BW, DQ, VL, VBMI, VBMI2, BITALG, VNNI and GFNI: x86-64 processors since 2019 (Ice Lake) and 2022 (Zen
// 4).
#include "../core/target.h"

#if TOPSIGN_X86
#include <immintrin.h>

#include "../core/all.h"
#include "functions.h"

namespace {

bool runs_here() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("gfni") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

}  // namespace

TOPSIGN_TARGET_BEGIN(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vnni,gfni,avx2,bmi,bmi2,popcnt")

#include "../kernels/functions.h"
#include "avx2.h"
#include "avx512_block_decoder.h"
#include "avx512_blocks.h"
#include "avx512_compact.h"
#include "avx512_pairs.h"
#include "avx512_trellis.h"

namespace topsign {
namespace {

// Bit planes of 32 bytes: combining eight codes in one 64-byte register costs more than it saves.
struct HalfPlanes : Avx2 {
    template <class P>
    using Pair = PlainPair<P>;
};

struct Avx512 : Avx2 {
    static constexpr int kBytes = 64;
    static constexpr bool kPermutesBlocks = true;
    static constexpr int64_t kFewFast = 32, kFewCompact = 24, kFewScoresFast = 20, kFewScoresCompact = 20;
    using Ahead = topsign::Ahead;
    using BitBlocks = topsign::BitBlocks;
    using ValueBlocks = topsign::ValueBlocks;
    using BlockDecoder = topsign::BlockDecoder;
    using CompactCounter = CompressCounter;
    using Narrow = HalfPlanes;

    template <class P>
    using Pair = PlainPair<P>;

    static TOPSIGN_INLINE Vec<uint64_t, 8> join(const uint8_t* low, const uint8_t* high) {
        const __m512i first = _mm512_castsi256_si512(load<__m256i>(low));
        return cast<Vec<uint64_t, 8>>(_mm512_inserti64x4(first, load<__m256i>(high), 1));
    }

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
        if constexpr (sizeof(To) == 64)
            return cast<To>(_mm512_cvtps_pd(cast<__m256>(values)));
        else
            return Avx2::widen<To>(values);
    }

    // Sum of a code's counts.
    static int64_t count_locations(const uint8_t* counts, int64_t n_blocks) {
        __m512i sums = _mm512_setzero_si512();
        for (int64_t b = 0; b < n_blocks; b += 64) {
            const __mmask64 exist = _bzhi_u64(~uint64_t(0), uint32_t(std::min<int64_t>(64, n_blocks - b)));
            const __m512i some = _mm512_maskz_loadu_epi8(exist, counts + b);
            sums = _mm512_add_epi64(sums, _mm512_sad_epu8(some, _mm512_setzero_si512()));
        }
        return _mm512_reduce_add_epi64(sums);
    }
};

constexpr Functions kTable = functions_of<Avx512, Avx512Trellis>("avx512", runs_here);

}  // namespace
}  // namespace topsign

TOPSIGN_TARGET_END

const topsign::Functions topsign::kAvx512 = kTable;
#endif
