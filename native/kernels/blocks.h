// Blocks of the fast layout, several at a time.
#pragma once

#include "../core/layout.h"
#include "../core/target.h"

namespace topsign {
namespace {

// Calls add(at, counts, block) for kParts blocks at a time, with pointers to up to sixteen locations of each block and
// their numbers. Returns the end of the locations.
template <int kParts, class Add>
TOPSIGN_INLINE const uint8_t* for_each_sixteen(const uint8_t* bytes, const uint8_t* counts, int64_t n_blocks,
                                               const Add& add) {
    for (int64_t block = 0; block < n_blocks; block += kParts) {
        const uint8_t* at[kParts];
        int left[kParts], most = 0;
        for (int b = 0; b < kParts; ++b) {
            left[b] = block + b < n_blocks ? counts[block + b] : 0;
            most = std::max(most, left[b]);
            at[b] = bytes;
            bytes += left[b];
        }
        for (; most > 0; most -= 16) {
            uint8_t step[kParts];
            for (int b = 0; b < kParts; ++b) step[b] = uint8_t(std::min(left[b], 16));
            add(at, step, block);
            for (int b = 0; b < kParts; ++b) {
                if (left[b] > 16) at[b] += 16;  // a finished block stays in place, inside the code
                left[b] = std::max(0, left[b] - 16);
            }
        }
    }
    return bytes;
}

}  // namespace
}  // namespace topsign
