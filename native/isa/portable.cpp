// Portable path: 16-byte vectors without intrinsics.
#include "../kernels/functions.h"
#include "plain.h"

namespace topsign {
namespace {

struct Portable : Plain<Portable, 16> {};

}  // namespace

extern const Functions kPortable = functions_of<Portable>("portable", [] { return true; });

}  // namespace topsign
