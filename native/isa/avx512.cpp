// AVX-512 with BW, DQ, VL, VBMI, VBMI2, BITALG and VNNI: x86-64 processors since 2019 (Ice Lake) and 2022 (Zen 4).
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
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

}  // namespace

TOPSIGN_TARGET_BEGIN(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vnni,avx2,bmi,bmi2,popcnt")

#include "../kernels/functions.h"
#include "avx2.h"
#include "avx512_few.h"
#include "avx512_trellis.h"

namespace topsign {
namespace {

// Two bits of equal weight as they are: an instruction of three operands adds them to a third in two steps.
template <class P>
struct PlainPair {
    P x, y;

    static TOPSIGN_INLINE PlainPair of(P x, P y) { return {x, y}; }

    static TOPSIGN_INLINE PlainPair add(P& sum, const PlainPair& a, const PlainPair& b) {
        const P first = a.add_to(sum);
        return {first, b.add_to(sum)};
    }

    TOPSIGN_INLINE P add_to(P& sum) const {
        constexpr int kOdd = 0x96, kTwoOrThree = 0xe8;
        P carry;
        if constexpr (sizeof(P) == 64) {
            const __m512i s = cast<__m512i>(sum), a = cast<__m512i>(x), b = cast<__m512i>(y);
            sum = cast<P>(_mm512_ternarylogic_epi64(s, a, b, kOdd));
            carry = cast<P>(_mm512_ternarylogic_epi64(s, a, b, kTwoOrThree));
        } else {
            const __m256i s = cast<__m256i>(sum), a = cast<__m256i>(x), b = cast<__m256i>(y);
            sum = cast<P>(_mm256_ternarylogic_epi64(s, a, b, kOdd));
            carry = cast<P>(_mm256_ternarylogic_epi64(s, a, b, kTwoOrThree));
        }
        return carry;
    }
};

// Planes of 32 bytes: eight codes side by side cost more to put together than they save.
struct HalfPlanes : Avx2 {
    template <class P>
    using Pair = PlainPair<P>;
};

struct Avx512 : Avx2 {
    static constexpr int kBytes = 64;
    static constexpr int64_t kFewFast = 6, kFewCompact = 5, kFewScoresFast = 6, kFewScoresCompact = 3;
    static constexpr bool kExpands = true;
    using FastCounter = ExpandCounter;
    using CompactCounter = CompressCounter;
    using V = Vec<uint8_t, 64>;
    using S = Vec<int8_t, 64>;
    using Wide = Vec<int16_t, 32>;

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

    static TOPSIGN_INLINE V load_parts(const uint8_t* const (&at)[4]) {
        const uint8_t* const low[2] = {at[0], at[1]};
        const uint8_t* const high[2] = {at[2], at[3]};
        const __m512i first = _mm512_castsi256_si512(cast<__m256i>(Avx2::load_parts(low)));
        return cast<V>(_mm512_inserti64x4(first, cast<__m256i>(Avx2::load_parts(high)), 1));
    }

    using Present = uint64_t;
    static TOPSIGN_INLINE Present first_of_parts(const uint8_t* counts) {
        uint64_t lanes = 0;
        for (int part = 0; part < 4; ++part) lanes |= uint64_t(_bzhi_u32(0xffff, counts[part])) << 16 * part;
        return lanes;
    }

    static TOPSIGN_INLINE auto choose_values(V bytes, Present present) {
        const __m512i b = cast<__m512i>(bytes), lookup = _mm512_and_si512(b, _mm512_set1_epi8(15));
        const __mmask64 by_1 = _mm512_movepi8_mask(_mm512_slli_epi16(b, 3)), positive = _mm512_movepi8_mask(b);
        const __mmask64 by_2 = _mm512_movepi8_mask(_mm512_slli_epi16(b, 2));
        const __mmask64 by_4 = _mm512_movepi8_mask(_mm512_slli_epi16(b, 1));
        return [=](const int8_t* values) {
            __m512i pick[8];
            for (int t = 0; t < 8; ++t) pick[t] = _mm512_shuffle_epi8(load<__m512i>(values + 64 * t), lookup);
            for (int t = 0; t < 8; t += 2) pick[t] = _mm512_mask_mov_epi8(pick[t], by_1, pick[t + 1]);
            for (int t = 0; t < 8; t += 4) pick[t] = _mm512_mask_mov_epi8(pick[t], by_2, pick[t + 2]);
            const __m512i value = _mm512_mask_mov_epi8(pick[0], by_4, pick[4]);
            const __m512i signed_value = _mm512_mask_sub_epi8(value, positive, _mm512_setzero_si512(), value);
            return cast<S>(_mm512_maskz_mov_epi8(present, signed_value));
        };
    }

    static TOPSIGN_INLINE Wide add_pairs(Wide sums, S values) {
        return sums + cast<Wide>(_mm512_maddubs_epi16(_mm512_set1_epi8(1), cast<__m512i>(values)));
    }

    static TOPSIGN_INLINE int32_t sum_lanes(Wide sums) {
        return _mm512_reduce_add_epi32(_mm512_madd_epi16(cast<__m512i>(sums), _mm512_set1_epi16(1)));
    }
};

constexpr Functions kTable = functions_of<Avx512, Avx512Trellis>("avx512", runs_here);

}  // namespace
}  // namespace topsign

TOPSIGN_TARGET_END

const topsign::Functions topsign::kAvx512 = kTable;
#endif
