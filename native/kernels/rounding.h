// Queries rounded to 8 bits or a few more, with bounds on the rounding error.
//
// A code's rounded sum differs from the true one by at most n_bits times the query's largest rounding error, so a code
// whose rounded sum plus that margin does not reach the bound cannot enter.
#pragma once

#include <vector>

#include "../core/bits.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

// Queries rounded to multiples of a step. The error of a sum of n_bits values is at most the margin.
template <class Value>
struct RoundedTo {
    std::vector<Value> values;  // (n_queries, n_pool)
    std::vector<float> steps, margins, largest;
    std::vector<float> lost;  // (n_queries, n_pool), if requested
};
using Rounded = RoundedTo<int8_t>;

template <class V>
float largest_of(V values) {
    float most = 0;
    for (int lane = 0; lane < kLanes<V>; ++lane) most = std::max<float>(most, values[lane]);
    return most;
}

template <class V>
TOPSIGN_INLINE V magnitude(V values) {
    using Bits = Vec<uint32_t, kLanes<V>>;
    return cast<V>(cast<Bits>(values) & splat<Bits>(0x7fffffffu));
}

template <class Isa, class Value = int8_t, int kLimit = 127>
RoundedTo<Value> round_queries(int n_threads, const ts_rows& queries, int64_t n_bits, bool keep_lost = false) {
    using V = Vec<float, Isa::kBytes / 4>;
    constexpr int64_t kWidth = kLanes<V>;
    RoundedTo<Value> rounded;
    const int64_t n_pool = queries.width, whole = n_pool / kWidth * kWidth;
    rounded.values.resize(queries.count * n_pool);
    if (keep_lost) rounded.lost.resize(queries.count * n_pool);
    for (auto* column : {&rounded.steps, &rounded.margins, &rounded.largest}) column->resize(queries.count);
    const auto round = [&, n_pool, whole](int64_t q) {
        const float* const query = queries.values + q * n_pool;
        Value* const out = rounded.values.data() + q * n_pool;
        float* const lost = keep_lost ? rounded.lost.data() + q * n_pool : nullptr;
        float rest[kWidth] = {};  // the last values, padded with zeros
        std::copy(query + whole, query + n_pool, rest);
        const auto values = [&](int64_t j) { return load<V>(j < whole ? query + j : rest); };
        V most{}, worst{};
        for (int64_t j = 0; j < n_pool; j += kWidth) most = max_of(most, magnitude(values(j)));
        const float largest = largest_of(most), step = largest > 0 ? largest / kLimit : 1.f;
        const V steps = splat<V>(step), limit = splat<V>(float(kLimit)), negative_limit = splat<V>(-float(kLimit));
        const V to_whole = splat<V>(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
        for (int64_t j = 0; j < n_pool; j += kWidth) {
            const V value = values(j), near = ((value / steps) + to_whole) - to_whole;
            const V kept = max_of(min_of(near, limit), negative_limit);
            const V error = value - kept * steps;
            worst = max_of(worst, magnitude(error));
            const auto whole_values = convert<Vec<Value, kWidth>>(convert<Vec<int32_t, kWidth>>(kept));
            const size_t n = size_t(std::min(kWidth, n_pool - j));
            std::memcpy(out + j, &whole_values, n * sizeof(Value));
            if (lost) std::memcpy(lost + j, &error, n * sizeof(float));
        }
        // Allow for float32 rounding in later comparisons, relative to the largest possible sum.
        const double margin = double(n_bits) * (double(largest_of(worst)) * (1 + 1e-6) + 4e-7 * double(largest));
        rounded.steps[q] = step;
        rounded.margins[q] = float(margin);
        rounded.largest[q] = largest;
    };
    parallel_for(n_threads, queries.count, double(n_pool), [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q) round(q);
    });
    return rounded;
}

// Rounding error, rounded in turn; its margins hold for the sum of both.
template <class Isa>
Rounded round_lost(int n_threads, const Rounded& rounded, const ts_rows& queries, int64_t n_bits) {
    Rounded finer = round_queries<Isa>(n_threads, ts_rows{rounded.lost.data(), queries.count, queries.width}, n_bits);
    // Allow for float32 rounding of the errors and of both sums, relative to the largest possible sum.
    for (int64_t q = 0; q < queries.count; ++q) finer.margins[q] += float(1e-6 * double(n_bits) * rounded.largest[q]);
    return finer;
}

}  // namespace
}  // namespace topsign
