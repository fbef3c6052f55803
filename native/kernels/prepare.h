// Preparation of queries for trellis codes: unit vectors, their projections, and rounded values of the coded ones.
#pragma once

#include "lane_sums.h"
#include "products.h"
#include "rounding.h"

namespace topsign {
namespace {

template <class Isa>
void prepare_queries(int n_threads, const ts_preparation& asked, const ts_rows& signals, const ts_prepared& out) {
    const int64_t n = signals.count, n_columns = asked.n_columns;
    square_norms<Isa>(n_threads, signals, out.norms);
    std::vector<float> factors(n), projected(n * n_columns), products(n * asked.n_coded);
    for (int64_t q = 0; q < n; ++q) {
        out.norms[q] = std::sqrt(out.norms[q]);
        factors[q] = out.norms[q] > 0 ? float(1 / out.norms[q]) : 0.f;
        for (int64_t i = 0; i < signals.width; ++i)
            out.units[q * signals.width + i] = signals.values[q * signals.width + i] * factors[q];
    }
    const ts_product product{asked.panels, n_columns, nullptr, nullptr, n, projected.data()};
    multiply<Isa>(n_threads, signals, factors.data(), &product, 1);
    for (int64_t q = 0; q < n; ++q)
        for (int64_t i = 0; i < asked.n_coded; ++i)
            products[q * asked.n_coded + i] = projected[q * n_columns + asked.coded[i]] * asked.weights[i];
    round_rows<Isa>(n_threads, {products.data(), n, asked.n_coded}, asked.limit, out.values, out.scales);
    std::fill(out.constants, out.constants + n, 0.f);
    if (!asked.mean) return;
    std::vector<double> constants(n);
    inner_products<Isa>(n_threads, {projected.data(), n, n_columns}, asked.mean, constants.data());
    for (int64_t q = 0; q < n; ++q) out.constants[q] = float(constants[q] / double(signals.width));
}

}  // namespace
}  // namespace topsign
