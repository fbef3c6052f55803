// Summation order of floating-point sums, shared by all paths.
#pragma once

#include <cstdint>

namespace topsign {

// Term i goes to lane i mod 16, in double precision, and the lanes are folded in half until one is left.
struct LaneSum {
    static constexpr int kLanes = 16;
    double lane[kLanes] = {};
    void add(int64_t i, double value) { lane[i % kLanes] += value; }
    double total() {
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
        return lane[0];
    }
};

}  // namespace topsign
