// Positions of the set bits of every byte value.
#pragma once

#include <cstdint>

namespace topsign {

struct OnesOfByte {
    alignas(8) uint8_t place[256][8] = {};  // ascending, then zeros
    uint8_t count[256] = {};
    constexpr OnesOfByte() {
        for (int byte = 0; byte < 256; ++byte) {
            int n = 0;
            for (int bit = 0; bit < 8; ++bit)
                if (byte >> bit & 1) place[byte][n++] = uint8_t(bit);
            count[byte] = uint8_t(n);
        }
    }
};
inline constexpr OnesOfByte kOnesOfByte;

}  // namespace topsign
