// Where the ones of a byte are.
#pragma once

#include "common.h"

namespace topsign {

struct OnesOfByte {
    alignas(8) uint8_t place[256][8];  // ascending, then zeros
    uint8_t count[256];
    OnesOfByte() {
        for (int byte = 0; byte < 256; ++byte) {
            int n = 0;
            for (int bit = 0; bit < 8; ++bit)
                if (byte >> bit & 1) place[byte][n++] = uint8_t(bit);
            count[byte] = uint8_t(n);
            while (n < 8) place[byte][n++] = 0;
        }
    }
};
extern const OnesOfByte kOnesOfByte;

}  // namespace topsign
