// AVX2 with BMI2, of x86-64 processors since 2013 (Haswell) and 2015 (Excavator, then Zen).
#include "../core/target.h"

#if TOPSIGN_X86
#include <immintrin.h>

#include <memory>

#include "../core/all.h"
#include "functions.h"

namespace {

bool runs_here() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

}  // namespace

TOPSIGN_TARGET_BEGIN("avx2,f16c,bmi,bmi2,popcnt")

#include "../kernels/functions.h"
#include "avx2.h"

namespace topsign {
namespace {

struct Avx2 : Avx2Of<Avx2, 32> {};

constexpr Functions kTable = functions_of<Avx2>("avx2", runs_here);

}  // namespace
}  // namespace topsign

TOPSIGN_TARGET_END

const topsign::Functions topsign::kAvx2 = kTable;
#endif
