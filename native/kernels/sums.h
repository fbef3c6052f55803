// Counts and sums of one code and one query; sums use the order shared by all paths.
#pragma once

#include "../core/lanes.h"
#include "../core/threads.h"
#include "rows.h"

namespace topsign {
namespace {

inline int32_t count_mismatches(const uint32_t* kept, int64_t begin, int64_t n, const uint32_t* query) {
    int32_t count = 0;
    for (int64_t i = begin; i < n; ++i) {
        const uint32_t row = kept[i] & ~kNegative, negative = kept[i] >> 31;
        count += int32_t((query[row >> 5] >> (row & 31) & 1) == negative);
    }
    return count;
}

// Adds the values of a query at the kept rows starting at `begin`, with the signs of the code.
inline float sum_kept(const uint32_t* kept, int64_t begin, int64_t n, const float* query, LaneSum& sum) {
    const auto term = [&](int64_t i) {
        const float value = query[kept[i] & ~kNegative];
        return double(kept[i] & kNegative ? -value : value);
    };
    int64_t i = begin;
    for (; i + LaneSum::kLanes <= n; i += LaneSum::kLanes)
        for (int lane = 0; lane < LaneSum::kLanes; ++lane) sum.lane[lane] += term(i + lane);
    for (; i < n; ++i) sum.add(i, term(i));
    return float(sum.total());
}

// Sign masks of four values for each combination of four bits; a set bit means positive.
struct SignMasks {
    alignas(16) uint32_t mask[16][4] = {};
    constexpr SignMasks() {
        for (int bits = 0; bits < 16; ++bits)
            for (int lane = 0; lane < 4; ++lane) mask[bits][lane] = bits >> lane & 1 ? 0 : kNegative;
    }
};
constexpr SignMasks kSignMasks;

// Sum of all values of a query with the signs of the code.
template <class Isa>
float sum_signs(const uint8_t* signs, int64_t n, const float* query) {
    constexpr int kWidth = std::min(4, Isa::kBytes / 8), kVectors = LaneSum::kLanes / kWidth;
    using V = Vec<double, kWidth>;
    using Values = Vec<float, kWidth>;
    using Bits = Vec<uint32_t, kWidth>;
    V lanes[kVectors] = {};
    int64_t i = 0;
    for (; i + LaneSum::kLanes <= n; i += LaneSum::kLanes) {
        uint16_t word;
        std::memcpy(&word, signs + i / 8, 2);
        for (int g = 0; g < kVectors; ++g) {
            const uint32_t* mask = kSignMasks.mask[word >> kWidth * g & ((1 << kWidth) - 1)];
            const Bits value = load<Bits>(query + i + kWidth * g) ^ load<Bits>(mask);
            lanes[g] = lanes[g] + Isa::template widen<V>(cast<Values>(value));
        }
    }
    LaneSum sum;
    std::memcpy(sum.lane, lanes, sizeof lanes);
    for (; i < n; ++i) sum.add(i, get_bit(signs, i) ? query[i] : -query[i]);
    return float(sum.total());
}

// Differing bits, under a mask unless it is null.
inline int32_t count_differing(const uint8_t* a, const uint8_t* b, const uint8_t* mask, int64_t bytes) {
    int32_t count = 0;
    int64_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t x, y, m = ~uint64_t(0);
        std::memcpy(&x, a + at, 8);
        std::memcpy(&y, b + at, 8);
        if (mask) std::memcpy(&m, mask + at, 8);
        count += count_ones((x ^ y) & m);
    }
    for (; at < bytes; ++at) count += count_ones(uint64_t((a[at] ^ b[at]) & (mask ? mask[at] : 255)));
    return count;
}

template <class Isa>
void mismatches(int n_threads, const ts_codes& codes, const ts_signs& queries, int32_t* out) {
    const Layout layout(codes.layout);
    const int64_t bytes = ceil_div(layout.n_pool, 8), words = ceil_div(layout.n_pool, 32);
    if (layout.signs()) {
        parallel_for(n_threads, codes.count, 0.1 * double(queries.count * bytes), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                for (int64_t q = 0; q < queries.count; ++q)
                    out[q * codes.count + i] =
                        count_differing(codes.data + i * bytes, queries.bits + q * bytes, nullptr, bytes);
        });
        return;
    }
    std::vector<uint32_t> bits(queries.count * words);
    for (int64_t q = 0; q < queries.count; ++q) std::memcpy(&bits[q * words], queries.bits + q * bytes, bytes);
    parallel_for(n_threads, codes.count, 0.5 * double((1 + queries.count) * layout.n_bits),
                 [&](int64_t begin, int64_t end) {
                     KeptReader<Isa> reader(layout, codes.data, codes.count);
                     for (int64_t i = begin; i < end; ++i) {
                         const uint32_t* kept = reader(i);
                         for (int64_t q = 0; q < queries.count; ++q)
                             out[q * codes.count + i] = Isa::count_mismatches(kept, layout.n_bits, &bits[q * words]);
                     }
                 });
}

template <class Isa>
void score_sums(int n_threads, const ts_codes& codes, const ts_rows& queries, float* out) {
    const Layout layout(codes.layout);
    parallel_for(
        n_threads, codes.count, 0.5 * double((1 + queries.count) * layout.n_bits), [&](int64_t begin, int64_t end) {
            if (layout.signs()) {
                for (int64_t i = begin; i < end; ++i)
                    for (int64_t q = 0; q < queries.count; ++q)
                        out[q * codes.count + i] = sum_signs<Isa>(codes.data + i * layout.code_bytes(), layout.n_pool,
                                                                  queries.values + q * queries.width);
                return;
            }
            KeptReader<Isa> reader(layout, codes.data, codes.count);
            for (int64_t i = begin; i < end; ++i) {
                const uint32_t* kept = reader(i);
                for (int64_t q = 0; q < queries.count; ++q)
                    out[q * codes.count + i] = Isa::sum_kept(kept, layout.n_bits, queries.values + q * queries.width);
            }
        });
}

}  // namespace
}  // namespace topsign
