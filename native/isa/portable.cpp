// No instruction set in particular: vectors of 16 bytes, which nearly every processor has.
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
