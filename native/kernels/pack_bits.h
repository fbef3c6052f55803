// Signs of projections, packed into bits.
#pragma once

#include "../core/bits.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

// Sign bits of 32 values: bit j is 1 if y[j] >= 0.
template <class Isa>
TOPSIGN_INLINE uint32_t positive_bits(const float* y) {
    using V = Vec<float, Isa::kBytes / 4>;
    using Bits = Vec<uint32_t, kLanes<V>>;
    Bits found{};
    for (int at = 0; at < 32; at += kLanes<V>)
        found = found | ((cast<Bits>(load<V>(y + at) >= V{}) & powers_of_two<Bits>()) << at);
    uint32_t word = 0;
    for (int lane = 0; lane < kLanes<V>; ++lane) word |= found[lane];
    return word;
}

template <class Isa>
void pack_bits(int n_threads, const ts_rows& rows, uint8_t* out) {
    const int64_t n = rows.width, bytes = ceil_div(n, 8);
    parallel_for(n_threads, rows.count, 0.12 * double(n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float* y = rows.values + i * n;
            uint8_t* to = out + i * bytes;
            int64_t j = 0;
            for (; j + 32 <= n; j += 32) {
                const uint32_t word = positive_bits<Isa>(y + j);
                std::memcpy(to + j / 8, &word, 4);
            }
            float rest[32];
            std::fill(std::copy(y + j, y + n, rest), rest + 32, -1.f);
            const uint32_t word = positive_bits<Isa>(rest);
            std::memcpy(to + j / 8, &word, size_t(bytes - j / 8));
        }
    });
}

}  // namespace
}  // namespace topsign
