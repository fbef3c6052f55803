// Products of rows of bytes: scores of the means of regions.
#pragma once

#include "../core/bits.h"
#include "../core/threads.h"
#include "../topsign.h"
#include "vec.h"

namespace topsign {
namespace {

// Calls take(query, row, sum) for every query and row of a batch, rows in order for each query.
template <class Isa, class Take>
void for_each_product(int n_threads, const ts_bytes& bytes, const Take& take) {
    constexpr int kWidth = Isa::kBytes / 4;
    using V = Vec<uint8_t, Isa::kBytes>;
    using Ints = Vec<int32_t, kWidth>;
    constexpr int64_t kRows = 32;  // rows whose bytes stay in the L1 cache for a batch of queries
    const int64_t width = bytes.width;
    parallel_for(n_threads, ceil_div(bytes.n_rows, kRows), 0.03 * double(kRows * width * bytes.n_queries),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block)
                         for (int64_t q = 0; q < bytes.n_queries; ++q) {
                             const int8_t* const query = bytes.queries + q * width;
                             const int64_t last = std::min((block + 1) * kRows, bytes.n_rows);
                             for (int64_t r = block * kRows; r < last; ++r) {
                                 const uint8_t* const row = bytes.rows + r * width;
                                 Ints sum{};
                                 for (int64_t i = 0; i < width; i += Isa::kBytes)
                                     sum = Isa::add_byte_products(sum, load<V>(row + i), load<Ints>(query + i));
                                 int32_t lanes[kWidth], total = 0;
                                 store(lanes, sum);
                                 for (int lane = 0; lane < kWidth; ++lane) total += lanes[lane];
                                 take(q, r, total);
                             }
                         }
                 });
}

template <class Isa>
void byte_products(int n_threads, const ts_bytes& bytes, int32_t* out) {
    for_each_product<Isa>(n_threads, bytes,
                          [&](int64_t q, int64_t r, int32_t sum) { out[q * bytes.n_rows + r] = sum; });
}

}  // namespace
}  // namespace topsign
