// Sums over rows of real values, in the order of LaneSum.
#pragma once

#include <cmath>

#include "../core/bits.h"
#include "../core/lanes.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

// Sums term(values, position of the first) over vectors of doubles, sixteen values at a time. The last values are
// given one by one, with zeros after them.
template <class Isa, class Term>
TOPSIGN_INLINE double sum_terms(const float* x, int64_t n, const Term& term) {
    constexpr int kWidth = Isa::kBytes / 8, kVectors = LaneSum::kLanes / kWidth;
    using V = Vec<double, kWidth>;
    V lanes[kVectors] = {};
    int64_t i = 0;
    for (; i + LaneSum::kLanes <= n; i += LaneSum::kLanes)
        for (int g = 0; g < kVectors; ++g)
            lanes[g] =
                lanes[g] + term(Isa::template widen<V>(load<Vec<float, kWidth>>(x + i + kWidth * g)), i + kWidth * g);
    LaneSum sum;
    std::memcpy(sum.lane, lanes, sizeof lanes);
    for (; i < n; ++i) {
        V one{};
        one[0] = double(x[i]);
        sum.add(i, term(one, i)[0]);
    }
    return sum.total();
}

template <class Isa, class Term>
void sum_rows(int n_threads, const ts_rows& rows, double* out, const Term& term) {
    parallel_for(n_threads, rows.count, 0.1 * double(rows.width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = sum_terms<Isa>(rows.values + i * rows.width, rows.width, term);
    });
}

template <class Isa>
void square_norms(int n_threads, const ts_rows& rows, double* out) {
    sum_rows<Isa>(n_threads, rows, out, [](auto v, int64_t) { return v * v; });
}

template <class Isa>
void magnitude_sums(int n_threads, const ts_rows& rows, double* out) {
    sum_rows<Isa>(n_threads, rows, out, [](auto v, int64_t) {
        using Bits = Vec<uint64_t, kLanes<decltype(v)>>;
        return cast<decltype(v)>(cast<Bits>(v) & splat<Bits>(INT64_MAX));
    });
}

template <class Isa>
void inner_products(int n_threads, const ts_rows& rows, const double* vector, double* out) {
    using V = Vec<double, Isa::kBytes / 8>;
    const int64_t whole = rows.width - rows.width % LaneSum::kLanes;
    sum_rows<Isa>(n_threads, rows, out, [=](V v, int64_t at) {
        if (at < whole) return V(v * load<V>(vector + at));
        v[0] *= vector[at];
        return v;
    });
}

}  // namespace
}  // namespace topsign
