// NEON, which every 64-bit ARM processor has.
#include "../core/target.h"

#if TOPSIGN_ARM
#include <arm_neon.h>

#include "../kernels/functions.h"
#include "../kernels/trellis_plain.h"
#include "plain.h"

namespace topsign {
namespace {

struct Neon : Plain, PlainTrellis<16> {
    static constexpr int kBytes = 16;
    using Narrow = Neon;
    static constexpr bool kLooksUp = true;
    using CompactCounter = WordCounter<Neon>;
    static constexpr int64_t kFewFast = 6, kFewCompact = 2, kFewScoresFast = 6, kFewScoresCompact = 2;
    using V = Vec<uint8_t, 16>;
    using S = Vec<int8_t, 16>;
    using Wide = Vec<int16_t, 8>;
    using Shorts = Vec<int16_t, 8>;
    using Ints = Vec<int32_t, 4>;

    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        const int32x4_t value = vandq_s32(vld1q_s32(reinterpret_cast<const int32_t*>(y)), vdupq_n_s32(kMagnitude));
        return vmaxvq_s32(value) < floor ? 0 : Plain::compress(y, row, floor, magnitudes, rows);
    }

    static TOPSIGN_INLINE void prefetch(const void* at) { __builtin_prefetch(at); }
    static TOPSIGN_INLINE V load_parts(const uint8_t* const (&at)[1]) { return load<V>(at[0]); }

    using Present = uint8x16_t;
    static TOPSIGN_INLINE Present first_of_parts(const uint8_t* counts) {
        return vcltq_u8(cast<uint8x16_t>(count_up<V>()), vld1q_dup_u8(counts));
    }

    static TOPSIGN_INLINE V look_up(V table, V index) {
        return cast<V>(vqtbl1q_u8(cast<uint8x16_t>(table), cast<uint8x16_t>(index)));
    }
    static TOPSIGN_INLINE V look_up_16(V table, V index) { return look_up(table, index); }
    static TOPSIGN_INLINE V upper_halves(V bytes) { return bytes >> 4; }
    static TOPSIGN_INLINE int32_t sum_bytes(V bytes) { return vaddlvq_u8(cast<uint8x16_t>(bytes)); }

    // Nibbles of eight bytes, the low one first.
    static TOPSIGN_INLINE V halves_of_bytes(const uint8_t* bytes) {
        const uint8x8_t both = vld1_u8(bytes), low = vand_u8(both, vdup_n_u8(15)), high = vshr_n_u8(both, 4);
        return cast<V>(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
    }

    // Expands bits to a mask of byte lanes.
    static TOPSIGN_INLINE V spread_bits(const uint8_t* bits) {
        const uint8x16_t bytes = vcombine_u8(vld1_dup_u8(bits), vld1_dup_u8(bits + 1));
        return cast<V>(vtstq_u8(bytes, vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u))));
    }

    // Mask of the lanes whose word has its bit `place` set.
    static TOPSIGN_INLINE V bits_of_words(const uint16_t* words, V place) {
        const uint8x16x2_t halves = vld2q_u8(reinterpret_cast<const uint8_t*>(words));
        const uint8x16_t at = cast<uint8x16_t>(place), is_upper = vtstq_u8(at, vdupq_n_u8(8));
        const uint8x16_t mask = vqtbl1q_u8(vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)), at);
        return cast<V>(vtstq_u8(vbslq_u8(is_upper, halves.val[1], halves.val[0]), mask));
    }

    // A table of 128 values is looked up in two halves; lanes outside a half keep their value.
    static TOPSIGN_INLINE auto choose_values(V bytes, Present present) {
        const uint8x16_t b = cast<uint8x16_t>(bytes), index = vandq_u8(b, vdupq_n_u8(127));
        const uint8x16_t positive = vcltzq_s8(vreinterpretq_s8_u8(b)), upper = vsubq_u8(index, vdupq_n_u8(64));
        return [=](const int8_t* values) {
            const auto* from = reinterpret_cast<const uint8_t*>(values);
            const uint8x16_t low = vqtbl4q_u8(vld1q_u8_x4(from), index);
            const uint8x16_t value = vqtbx4q_u8(low, vld1q_u8_x4(from + 64), upper);
            const uint8x16_t turned = vsubq_u8(veorq_u8(value, positive), positive);
            return cast<S>(vandq_u8(turned, present));
        };
    }

    static TOPSIGN_INLINE Wide add_pairs(Wide sums, S values) {
        return cast<Wide>(vpadalq_s8(cast<int16x8_t>(sums), cast<int8x16_t>(values)));
    }

    static TOPSIGN_INLINE int32_t sum_lanes(Wide sums) { return vaddlvq_s16(cast<int16x8_t>(sums)); }

    static TOPSIGN_INLINE Ints add_products(Ints sum, Shorts a, Shorts b) {
        const int16x8_t x = cast<int16x8_t>(a), y = cast<int16x8_t>(b);
        const int32x4_t products = vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
        return cast<Ints>(vaddq_s32(cast<int32x4_t>(sum), products));
    }

    // Level bytes are at most 127, so they can be treated as signed.
    static TOPSIGN_INLINE Ints add_products(Ints sum, V levels, Ints values) {
        const int8x16_t x = cast<int8x16_t>(levels), y = cast<int8x16_t>(values);
        const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)));
        return sum + cast<Ints>(vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(x, y))));
    }

    static TOPSIGN_INLINE uint16_t take_less(Costs& least, Costs other) {
        const uint32x4_t bits = {1, 2, 4, 8}, less = vcltzq_s32(cast<int32x4_t>(other - least));
        least = cast<Costs>(vbslq_u32(less, cast<uint32x4_t>(other), cast<uint32x4_t>(least)));
        return uint16_t(vaddvq_u32(vandq_u32(less, bits)));
    }

    static TOPSIGN_INLINE void group_bytes(V a, V b, V c, V d, V* out) {
        const uint8x16x2_t ab = vzipq_u8(cast<uint8x16_t>(a), cast<uint8x16_t>(b));
        const uint8x16x2_t cd = vzipq_u8(cast<uint8x16_t>(c), cast<uint8x16_t>(d));
        for (int half = 0; half < 2; ++half) {
            const uint16x8_t first = vreinterpretq_u16_u8(ab.val[half]), second = vreinterpretq_u16_u8(cd.val[half]);
            const uint16x8x2_t four = vzipq_u16(first, second);
            out[2 * half] = cast<V>(four.val[0]);
            out[2 * half + 1] = cast<V>(four.val[1]);
        }
    }

    static TOPSIGN_INLINE Reals inverse_root(Reals squares) {
        return cast<Reals>(vdivq_f32(vdupq_n_f32(1), vsqrtq_f32(cast<float32x4_t>(squares))));
    }

    // A table of 128 bytes is looked up in two halves; lanes outside a half keep their value.
    static TOPSIGN_INLINE auto level_table(const uint8_t* table) {
        const uint8x16x4_t low = vld1q_u8_x4(table), high = vld1q_u8_x4(table + 64);
        return [=](V index) {
            const uint8x16_t at = vshrq_n_u8(cast<uint8x16_t>(index), 1);
            return cast<V>(vqtbx4q_u8(vqtbl4q_u8(low, at), high, vsubq_u8(at, vdupq_n_u8(64))));
        };
    }
};

constexpr Functions kTable = functions_of<Neon>("neon", [] { return true; });

}  // namespace

extern const Functions kNeon = kTable;

}  // namespace topsign
#endif
