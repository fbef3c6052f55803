// Portable path: 16-byte vectors without intrinsics.
#include "../kernels/functions.h"
#include "../kernels/trellis_plain.h"
#include "plain.h"

namespace topsign {
namespace {

struct Portable : Plain, PlainTrellis<16> {
    static constexpr int kBytes = 16;
    using Narrow = Portable;
};

}  // namespace

extern const Functions kPortable = functions_of<Portable>("portable", [] { return true; });

}  // namespace topsign
