// Which path this processor can run.
#include "common.h"
#include "ones.h"

namespace topsign {
const OnesOfByte kOnesOfByte;
}

int ts_interface() { return 3; }

int ts_supports(int path) {
    if (path == kScalar) return 1;
#if TOPSIGN_X86
    if (path == kAvx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#endif
    return 0;
}
