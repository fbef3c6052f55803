// Codes of groups: location and sign of the largest of eight projections, in a nibble.
#pragma once

#include <cmath>

#include "../core/lanes.h"
#include "select.h"

namespace topsign {
namespace {

// The nibble of eight projections, and the largest magnitude. Magnitudes of floats order like their bits.
inline uint8_t largest_of_eight(const float* y, float& largest) {
    int32_t most = magnitude_bits(y[0]), location = 0;
    for (int j = 1; j < 8; ++j) {
        const int32_t one = magnitude_bits(y[j]);
        location = one > most ? j : location;
        most = std::max(most, one);
    }
    std::memcpy(&largest, &most, sizeof largest);
    return uint8_t(location | (y[location] >= 0) << 3);
}

template <class Isa>
void encode_groups(int n_threads, const ts_rows& projected, uint8_t* out, double* totals) {
    const int64_t n_groups = projected.width / 8;
    parallel_for(n_threads, projected.count, 2.0 * double(n_groups), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float* const y = projected.values + i * projected.width;
            LaneSum sum;
            for (int64_t g = 0; g < n_groups; g += 2) {
                float first, second;
                const uint8_t low = largest_of_eight(y + 8 * g, first), high = largest_of_eight(y + 8 * g + 8, second);
                out[(i * n_groups + g) / 2] = uint8_t(low | high << 4);
                sum.add(g, first);
                sum.add(g + 1, second);
            }
            totals[i] = sum.total();
        }
    });
}

}  // namespace
}  // namespace topsign
