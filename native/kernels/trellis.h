// Trellis codes: each coordinate reads a window of a ring of bits.
//
// Coordinate i reads `window` bits of the ring from offsets[i] on, highest bit first, as the high bits of a 16-bit
// word. The word is multiplied and shifted by fixed numbers (256 pairs, in turn), modulo 2^16, and the seven high bits
// of the result select one of 128 levels, antisymmetric odd numbers. Adjacent windows overlap, so a bit contributes to
// several coordinates. Any bytes are a valid code.
#pragma once

#include <algorithm>
#include <vector>

#include "../core/bits.h"
#include "../core/lines.h"
#include "vec.h"

namespace topsign {
namespace {

constexpr int kSequences = 256;  // multipliers and addends, taken in turn
constexpr int kLevels = 128;
constexpr int kMiddle = 127;  // levels are 2 * b - 127 for 7-bit bytes b

// Coordinates that read the same window.
struct Event {
    int64_t begin, end;
    int offset, advance;  // bits after the event before, at most the whole window
};

inline std::vector<Event> events_of(const ts_trellis& trellis) {
    std::vector<Event> events;
    for (int64_t i = 0; i < trellis.n_coded; ++i) {
        if (i == 0 || trellis.offsets[i] != trellis.offsets[i - 1]) events.push_back({i, i, trellis.offsets[i], 0});
        events.back().end = i + 1;
    }
    for (size_t e = 0; e < events.size(); ++e) {
        const Event& before = events[e == 0 ? events.size() - 1 : e - 1];
        int64_t bits = events[e].offset - before.offset;
        if (bits <= 0) bits += trellis.n_bits;
        events[e].advance = int(std::min<int64_t>(bits, trellis.window));
    }
    return events;
}

// Bytes of an unrolled ring, which repeats its beginning after the last bit.
inline int64_t unrolled_bytes(const ts_trellis& trellis) { return ceil_div(trellis.n_bits, 8) + 4; }

inline void unroll(const ts_trellis& trellis, const uint8_t* code, uint8_t* ring) {
    const int64_t whole = trellis.n_bits / 8;
    const int part = int(trellis.n_bits % 8);
    std::memcpy(ring, code, whole);
    if (part == 0) {
        for (int64_t i = 0; i < 4; ++i) ring[whole + i] = code[i % whole];
        return;
    }
    // The last bits, then the ring from its beginning.
    uint32_t carried = uint32_t(code[whole] >> (8 - part));
    for (int64_t i = 0; i < 5 - (part == 0); ++i) {
        carried = carried << 8 | code[i % whole];
        ring[whole + i] = uint8_t(carried >> part);
    }
}

// Loads 16 bits starting at bit `offset`.
inline uint32_t read_word(const uint8_t* ring, int64_t offset) {
    const uint8_t* at = ring + (offset >> 3);
    return (uint32_t(at[0]) << 16 | uint32_t(at[1]) << 8 | at[2]) >> (8 - (offset & 7)) & 0xffff;
}

}  // namespace
}  // namespace topsign
