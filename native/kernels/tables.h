// Scans by look-up tables: a query is a table of 16 bytes per nibble, or of 256 bytes per byte, of a code.
//
// Tables are rounded to 8 or 7 bits. The sum of what a code looks up differs from its exact sum by at most the margin
// of the query, so a code whose rounded score plus margin does not reach the bound cannot enter.
#pragma once

#include <cmath>

#include "levels.h"

namespace topsign {
namespace {

// Rounded sums up to first + (high byte of the factor's number * slope >> 9) cannot reach a bound.
struct NarrowBound {
    int16_t first = INT16_MIN, slope = 0;
};

// Rounded tables of one query: the exact sum is within `margin` of step * (rounded sum) + base.
struct TableScale {
    double step = 1, base = 0, margin = 0, largest = 0;  // the largest magnitude of a sum
};

// Exact tables of a query for signs or groups, (2 * n_bytes, 16).
inline void nibble_values(const ts_scoring& scoring, const int16_t* values, int32_t* out) {
    const int64_t n_tables = 2 * plain_bytes(scoring);
    if (scoring.kind == TS_GROUPS) {
        for (int64_t t = 0; t < n_tables; ++t)
            for (int j = 0; j < 8; ++j) {
                out[16 * t + j] = -values[8 * t + j];
                out[16 * t + 8 + j] = values[8 * t + j];
            }
        return;
    }
    for (int64_t t = 0; t < n_tables; ++t) {
        int32_t value[4] = {};
        for (int j = 0; j < 4 && 4 * t + j < scoring.width; ++j) value[j] = values[4 * t + j];
        for (int nibble = 0; nibble < 16; ++nibble) {
            int32_t sum = 0;
            for (int j = 0; j < 4; ++j) sum += nibble >> j & 1 ? value[j] : -value[j];
            out[16 * t + nibble] = sum;
        }
    }
}

// Splits tables into two signed bytes: value = step * high + low. Queries are limited so that both are at most 127.
inline TableScale split_nibbles(const int32_t* values, int64_t n_tables, int8_t* high, int8_t* low) {
    TableScale scale;
    int32_t largest = 0;
    for (int64_t i = 0; i < 16 * n_tables; ++i) largest = std::max(largest, std::abs(values[i]));
    const int32_t step = std::max(1, (largest + 126) / 127);
    scale.step = step;
    const float inverse = 1.f / float(step);
    for (int64_t t = 0; t < n_tables; ++t) {
        int32_t most = 0, worst = 0;
        for (int j = 0; j < 16; ++j) {
            const int32_t value = values[16 * t + j];
            const auto rounded = int32_t(std::nearbyint(float(value) * inverse)), rest = value - rounded * step;
            high[16 * t + j] = int8_t(rounded);
            low[16 * t + j] = int8_t(rest);
            most = std::max(most, std::abs(value));
            worst = std::max(worst, std::abs(rest));
        }
        scale.margin += worst;
        scale.largest += most;
    }
    return scale;
}

// Exact tables of a query for a ring, (n_steps, 256).
template <class Isa>
void ring_values(const ts_ring& ring, const int16_t* values, int32_t* out) {
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    constexpr int kWidth = kLanes<Ints>, kPart = 4 * kWidth;  // windows whose sums stay in registers
    for (int64_t step = 0; step < ring.n_steps; ++step)
        for (int part = 0; part < kWindows; part += kPart) {
            const int8_t* column = ring.columns + ring.books[step] + part;
            Ints sums[4] = {};
            for (int64_t c = ring.first[step]; c < ring.first[step + 1]; ++c, column += kWindows) {
                const Ints value = splat<Ints>(values[c]);
                for (int v = 0; v < 4; ++v) sums[v] = sums[v] + value * Isa::to_ints(column + v * kWidth);
            }
            for (int v = 0; v < 4; ++v) store(out + step * kWindows + part + v * kWidth, sums[v]);
        }
}

// Rounds tables to seven bits, counted from the least value of each. Differences of values fit 31 bits: a step has at
// most 256 coordinates, and products are at most 127^2 * 255.
template <class Isa>
TableScale round_ring(const int32_t* values, int64_t n_steps, uint8_t* out) {
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    using Floats = Vec<float, Isa::kBytes / 4>;
    constexpr int kWidth = kLanes<Ints>;
    TableScale scale;
    std::vector<int32_t> least(n_steps);
    int32_t widest = 1;
    for (int64_t s = 0; s < n_steps; ++s) {
        const int32_t* const table = values + s * kWindows;
        Ints high = load<Ints>(table), opposite = Ints{} - high;
        for (int w = kWidth; w < kWindows; w += kWidth) {
            const Ints some = load<Ints>(table + w);
            high = max_of(high, some);
            opposite = max_of(opposite, Ints{} - some);
        }
        int32_t most = high[0], low = -opposite[0];
        for (int i = 1; i < kWidth; ++i) {
            most = std::max<int32_t>(most, high[i]);
            low = std::min<int32_t>(low, -opposite[i]);
        }
        least[s] = low;
        widest = std::max(widest, most - low);
        scale.largest += std::max(std::fabs(double(low)), std::fabs(double(most)));
    }
    const double step = std::max(1.0, double(widest) / 127);
    const Floats inverse = splat<Floats>(float(1 / step));
    for (int64_t s = 0; s < n_steps; ++s) {
        const int32_t* const table = values + s * kWindows;
        Floats worst{};
        for (int w = 0; w < kWindows; w += kWidth) {
            const Floats place = convert<Floats>(load<Ints>(table + w) - splat<Ints>(least[s])) * inverse;
            Ints rounded = convert<Ints>(place + splat<Floats>(0.5f));
            rounded = Ints{} - max_of(Ints{} - rounded, splat<Ints>(-127));
            const Floats error = place - convert<Floats>(rounded);
            worst = max_of(worst, max_of(error, Floats{} - error));
            Isa::narrow(rounded, out + s * kWindows + w);
        }
        float most = 0;
        for (int i = 0; i < kWidth; ++i) most = std::max<float>(most, worst[i]);
        scale.base += least[s];
        scale.margin += step * (double(most) + 1e-4);
    }
    scale.step = step;
    return scale;
}

// Sums of nibble tables for registers of up to 32 bytes: a plane is one register or two.
template <class Isa>
class PlainNibbles {
   public:
    static constexpr int kTile = 1, kQueries = 2;  // blocks and queries at a time

    static int64_t table_bytes(int64_t n_bytes) { return 32 * n_bytes; }
    static void lay_out(const int8_t* tables, int64_t n_bytes, uint8_t* out) {
        for (int64_t i = 0; i < 32 * n_bytes; ++i) out[i] = uint8_t(tables[i] + 128);
    }

    // Begins a tile; `ahead` is the next one.
    void enter(const uint8_t* const* blocks, const uint8_t* const*, int64_t n_bytes) {
        block_ = blocks[0];
        n_bytes_ = n_bytes;
    }

    template <int N>
    void sums(const uint8_t* const* tables, int32_t (*out)[kTile][kBlock]) const {
        constexpr int64_t kPlanes = 128;  // whose values fit 16 bits
        for (int q = 0; q < N; ++q) std::fill(out[q][0], out[q][0] + kBlock, int32_t(-256 * n_bytes_));
        for (int64_t begin = 0; begin < n_bytes_; begin += kPlanes)
            for (int part = 0; part < kParts; ++part)
                add<N>(tables, begin, std::min(n_bytes_, begin + kPlanes), part, out);
    }

   private:
    static constexpr int kParts = int(kBlock) / Isa::kBytes;
    using V = Vec<uint8_t, Isa::kBytes>;
    using Words = Vec<uint16_t, Isa::kBytes / 2>;

    template <int N>
    TOPSIGN_INLINE void add(const uint8_t* const* tables, int64_t begin, int64_t end, int part,
                            int32_t (*out)[kTile][kBlock]) const {
        Words all[N] = {}, odd[N] = {};  // even and odd codes together, and odd ones
        for (int64_t p = begin; p < end; ++p) {
            const V codes = load<V>(block_ + p * kBlock + part * Isa::kBytes);
            const V low = codes & splat<V>(15), high = cast<V>(cast<Words>(codes) >> 4) & splat<V>(15);
            for (int q = 0; q < N; ++q) {
                const Words a = cast<Words>(Isa::look_up_16(tables[q] + 32 * p, low));
                const Words b = cast<Words>(Isa::look_up_16(tables[q] + 32 * p + 16, high));
                all[q] = all[q] + a + b;
                odd[q] = odd[q] + (a >> 8) + (b >> 8);
            }
        }
        for (int q = 0; q < N; ++q) {
            uint16_t even_sums[kLanes<Words>], odd_sums[kLanes<Words>];
            store(even_sums, all[q] - (odd[q] << 8));
            store(odd_sums, odd[q]);
            for (int i = 0; i < kLanes<Words>; ++i) {
                out[q][0][part * kLanes<Words> + i] += even_sums[i];
                out[q][0][kBlock / 2 + part * kLanes<Words> + i] += odd_sums[i];
            }
        }
    }

    const uint8_t* block_ = nullptr;
    int64_t n_bytes_ = 0;
};

// Sums of byte tables along rings, the same way.
template <class Isa>
struct PlainRings {
    static constexpr int kTile = 1, kAhead = 1;  // blocks at a time, and tiles from here to those that are prefetched
    static constexpr bool kNarrow = false;       // whether it has a test in 16 bits

    static void reaching(const uint8_t* const*, const uint8_t* const*, int64_t, const uint8_t*, NarrowBound, int64_t,
                         uint32_t*, uint16_t (*)[kBlock]) {}
    static int32_t sum_of(const uint16_t (*sums)[kBlock], int64_t block, int lane) { return sums[block][lane]; }

    // tables: (n_bytes, 2, 256), those of the even and the odd step of each byte.
    static void sums(const uint8_t* const* blocks, const uint8_t* const*, int64_t n_bytes, const uint8_t* tables,
                     int32_t (*out)[kBlock]) {
        using V = Vec<uint8_t, Isa::kBytes>;
        using Words = Vec<uint16_t, Isa::kBytes / 2>;
        constexpr int64_t kPlanes = 256;  // whose values fit 16 bits
        const uint8_t* const block = blocks[0];
        std::fill(out[0], out[0] + kBlock, 0);
        for (int part = 0; part < int(kBlock) / Isa::kBytes; ++part) {
            V before = load<V>(block + (n_bytes - 1) * kBlock + part * Isa::kBytes);
            for (int64_t begin = 0; begin < n_bytes; begin += kPlanes) {
                Words even{}, odd{};
                for (int64_t p = begin; p < std::min(n_bytes, begin + kPlanes); ++p) {
                    const V codes = load<V>(block + p * kBlock + part * Isa::kBytes);
                    const V high = cast<V>(cast<Words>(codes) >> 4) & splat<V>(15);
                    const V low = cast<V>(cast<Words>(before) << 4) & splat<V>(0xf0);
                    const Words both = cast<Words>(Isa::look_up_256(tables + 512 * p, V(low | high)) +
                                                   Isa::look_up_256(tables + 512 * p + 256, codes));
                    even = even + (both & splat<Words>(255));
                    odd = odd + (both >> 8);
                    before = codes;
                }
                uint16_t sums[2][kLanes<Words>];
                store(sums[0], even);
                store(sums[1], odd);
                for (int half = 0; half < 2; ++half)
                    for (int i = 0; i < kLanes<Words>; ++i)
                        out[0][half * kBlock / 2 + part * kLanes<Words> + i] += sums[half][i];
            }
        }
    }
};

}  // namespace
}  // namespace topsign
