// Queries rounded to 16 bits.
#pragma once

#include <cmath>

#include "../core/threads.h"
#include "../topsign.h"
#include "vec.h"

namespace topsign {
namespace {

template <class Isa>
void round_rows(int n_threads, const ts_rows& rows, int64_t limit, int16_t* out, float* steps) {
    parallel_for(n_threads, rows.count, double(rows.width), [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q) {
            const float* const from = rows.values + q * rows.width;
            int16_t* const to = out + q * rows.width;
            float largest = 0;
            for (int64_t i = 0; i < rows.width; ++i) largest = std::max(largest, std::fabs(from[i]));
            const float step = largest > 0 ? largest / float(limit) : 1.f;
            steps[q] = step > 0 ? step : 1.f;  // of numbers near zero, quotients may underflow
            const double unit = steps[q], most = double(limit);
            for (int64_t i = 0; i < rows.width; ++i)
                to[i] = int16_t(std::max(-most, std::min(most, std::nearbyint(double(from[i]) / unit))));
        }
    });
}

}  // namespace
}  // namespace topsign
