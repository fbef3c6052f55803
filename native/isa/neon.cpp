// NEON, which every 64-bit ARM processor has.
#include "../core/target.h"

#if TOPSIGN_ARM
#include <arm_neon.h>

#include "../kernels/functions.h"
#include "plain.h"

namespace topsign {
namespace {

struct Neon : Plain<Neon, 16> {
    static constexpr int64_t kFewRings = 8;
    static constexpr double kRingCost = 8, kProductCost = 0.6;

    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        const int32x4_t value = vandq_s32(vld1q_s32(reinterpret_cast<const int32_t*>(y)), vdupq_n_s32(kMagnitude));
        return vmaxvq_s32(value) < floor ? 0 : Plain::compress(y, row, floor, magnitudes, rows);
    }

    static TOPSIGN_INLINE void widen_halves(const uint8_t* from, float* to) {
        for (int i = 0; i < 8; i += 4) vst1q_f32(to + i, vcvt_f32_f16(cast<float16x4_t>(load<uint64_t>(from + 2 * i))));
    }

    static TOPSIGN_INLINE Ints to_ints(const int8_t* levels) {
        const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(load<int32_t>(levels))));
        return cast<Ints>(vmovl_s16(vget_low_s16(words)));
    }

    static TOPSIGN_INLINE V look_up_16(const uint8_t* table, V index) {
        return cast<V>(vqtbl1q_u8(vld1q_u8(table), cast<uint8x16_t>(index)));
    }

    // Four look-ups in 64 entries each; lanes outside a part keep their value.
    static TOPSIGN_INLINE V look_up_256(const uint8_t* table, V index) {
        const uint8x16_t at = cast<uint8x16_t>(index);
        uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(table), at);
        for (int part = 1; part < 4; ++part)
            found = vqtbx4q_u8(found, vld1q_u8_x4(table + 64 * part), vsubq_u8(at, vdupq_n_u8(uint8_t(64 * part))));
        return cast<V>(found);
    }

    static TOPSIGN_INLINE Ints add_byte_products(Ints sum, V levels, Ints values) {
        const int8x16_t x = cast<int8x16_t>(levels), y = cast<int8x16_t>(values);
        const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)));
        return sum + cast<Ints>(vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(x, y))));
    }
};

constexpr Functions kTable = functions_of<Neon>("neon", [] { return true; });

}  // namespace

extern const Functions kNeon = kTable;

}  // namespace topsign
#endif
