// Queries of trellis codes in bytes: projections times weights, rounded to one or two digits of 8 bits.
#pragma once

#include <vector>

#include "../core/bits.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

// Rounds the queries of all cells. Arithmetic is in float64, and quotients are rounded to the nearest integer, ties to
// even.
template <class Isa>
class TrellisRounding {
   public:
    explicit TrellisRounding(const ts_trellis_rounding& asked)
        : asked_(asked), weighted_(asked.n_cells ? asked.ends[asked.n_cells - 1] : 0) {}

    void round(int64_t query) {
        const ts_rows& projected = asked_.projected;
        const float* const from = projected.values + query * projected.width;
        for (int64_t cell = 0; cell < asked_.n_cells; ++cell) {
            const int64_t begin = cell ? asked_.ends[cell - 1] : 0, n = asked_.ends[cell] - begin;
            const int64_t at = begin * projected.count + query * n, fine_bits = asked_.fine_bits[cell];
            const double largest = weigh(from, begin, n);
            const double step = largest / double(127 << fine_bits);
            asked_.scales[cell * projected.count + query] = float(step);
            const double divisor = step > 0 ? step : 1;
            if (fine_bits)
                round_twice(n, divisor, int(fine_bits), asked_.values + at, asked_.fine + at);
            else
                round_once(n, divisor, asked_.values + at);
        }
    }

   private:
    static constexpr double kToInteger = 0x1.8p52;  // adding it rounds to an integer

    // Fills weighted_; returns the largest magnitude, whose bits are compared as integers.
    double weigh(const float* from, int64_t begin, int64_t n) {
        const int64_t* const columns = asked_.columns + begin;
        const double* const weights = asked_.weights + begin;
        double* const weighted = weighted_.data();
        for (int64_t i = 0; i < n; ++i) weighted[i] = double(from[columns[i]]) * weights[i];
        int64_t most = 0;
        for (int64_t i = 0; i < n; ++i) {
            int64_t bits;
            std::memcpy(&bits, weighted + i, sizeof bits);
            most = std::max(most, bits & INT64_MAX);
        }
        double largest;
        std::memcpy(&largest, &most, sizeof largest);
        return largest;
    }

    void round_once(int64_t n, double divisor, int8_t* values) const {
        const double* const weighted = weighted_.data();
        for (int64_t i = 0; i < n; ++i) values[i] = int8_t(int32_t((weighted[i] / divisor + kToInteger) - kToInteger));
    }

    void round_twice(int64_t n, double divisor, int fine_bits, int8_t* values, int8_t* fine) const {
        const double* const weighted = weighted_.data();
        for (int64_t i = 0; i < n; ++i) {
            const int32_t whole = int32_t((weighted[i] / divisor + kToInteger) - kToInteger);
            const int32_t high = (whole + (1 << fine_bits >> 1)) >> fine_bits;
            values[i] = int8_t(high);
            fine[i] = int8_t(whole - high * (1 << fine_bits));
        }
    }

    const ts_trellis_rounding& asked_;
    std::vector<double> weighted_;  // values of one cell
};

template <class Isa>
void trellis_round(int n_threads, const ts_trellis_rounding& asked) {
    const int64_t n_columns = asked.n_cells ? asked.ends[asked.n_cells - 1] : 0;
    parallel_for(n_threads, asked.projected.count, 1.5 * double(n_columns), [&](int64_t begin, int64_t end) {
        TrellisRounding<Isa> rounding(asked);
        for (int64_t query = begin; query < end; ++query) rounding.round(query);
    });
}

}  // namespace
}  // namespace topsign
