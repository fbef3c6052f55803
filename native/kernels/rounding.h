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
            using Floats = Vec<float, Isa::kBytes / 4>;
            using Half = Vec<float, Isa::kBytes / 8>;
            using Doubles = Vec<double, Isa::kBytes / 8>;
            constexpr int kWidth = kLanes<Floats>, kPart = kLanes<Half>;
            const int64_t whole = rows.width - rows.width % kWidth;
            float largest = 0;
            Floats peaks{};
            for (int64_t i = 0; i < whole; i += kWidth) {
                const Floats some = load<Floats>(from + i);
                peaks = max_of(peaks, max_of(some, Floats{} - some));
            }
            for (int i = 0; i < kWidth; ++i) largest = std::max<float>(largest, peaks[i]);
            for (int64_t i = whole; i < rows.width; ++i) largest = std::max(largest, std::fabs(from[i]));
            const float step = largest > 0 ? largest / float(limit) : 1.f;
            steps[q] = step > 0 ? step : 1.f;  // of numbers near zero, quotients may underflow
            const double unit = steps[q], most = double(limit);
            const Doubles units = splat<Doubles>(unit), magic = splat<Doubles>(6755399441055744.0);  // rounds to even
            for (int64_t i = 0; i < whole; i += kPart) {
                const Doubles quotients = Isa::template widen<Doubles>(load<Half>(from + i)) / units;
                const Doubles rounded = (quotients + magic) - magic;
                for (int j = 0; j < kPart; ++j)
                    to[i + j] = int16_t(std::max(-most, std::min<double>(most, rounded[j])));
            }
            for (int64_t i = whole; i < rows.width; ++i)
                to[i] = int16_t(std::max(-most, std::min(most, std::nearbyint(double(from[i]) / unit))));
        }
    });
}

}  // namespace
}  // namespace topsign
