// No instruction set in particular: vectors of 16 bytes, which nearly every processor has.
#include "../kernels/functions.h"
#include "plain.h"

namespace topsign {
namespace {

struct Portable : Plain {
    static constexpr int kBytes = 16;
};

}  // namespace

extern const Functions kPortable = functions_of<Portable>("portable", [] { return true; });

}  // namespace topsign
