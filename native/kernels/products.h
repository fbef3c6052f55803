// Products of signals with the columns of matrices, in float32.
//
// A product is the sum over features in ascending order, each term multiplied and then added: the same bits on every
// path, for any number of signals and threads.
#pragma once

#include "../core/bits.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

constexpr int64_t kPanel = 32;         // adjacent columns
constexpr int64_t kPanelsAtATime = 8;  // most panels multiplied per read of a tile of signals

template <class Isa>
class Products {
    using V = Vec<float, Isa::kBytes / 4>;
    static constexpr int kVectors = 2, kColumns = kVectors * kLanes<V>;

   public:
    static constexpr int kRows = Isa::kBytes == 64 ? 12 : 6;  // signals whose sums fit the registers

    Products(const ts_rows& signals, const float* factors)
        : signals_(signals), factors_(factors), values_(kRows * signals.width) {}

    // Multiplies signals [first, first + n) of the request by panels [begin, end).
    void multiply(const ts_product& asked, int64_t first, int64_t n, int64_t begin, int64_t end) {
        for (int64_t done = 0; done < n;) {
            const int64_t left = n - done;
            if (left >= kRows) {
                tile<kRows>(asked, first + done, begin, end);
                done += kRows;
            } else if (left >= 3) {
                tile<3>(asked, first + done, begin, end);
                done += 3;
            } else {
                tile<1>(asked, first + done, begin, end);
                done += 1;
            }
        }
    }

   private:
    template <int N>
    void tile(const ts_product& asked, int64_t first, int64_t begin, int64_t end) {
        const int64_t width = signals_.width;
        for (int r = 0; r < N; ++r) {
            const int64_t row = asked.rows ? asked.rows[first + r] : first + r;
            const float* const from = signals_.values + row * width;
            const float factor = factors_ ? factors_[row] : 1.f;
            for (int64_t f = 0; f < width; ++f) values_[f * N + r] = from[f] * factor;
            if (asked.minus)
                for (int64_t f = 0; f < width; ++f) values_[f * N + r] -= asked.minus[f];
        }
        int64_t panel = begin;
        if (N == 1)
            for (; panel + kTogether <= end && (panel + kTogether) * kPanel <= asked.n_columns; panel += kTogether)
                add_panels(asked.panels + panel * width * kPanel, asked.out + first * asked.n_columns + panel * kPanel);
        for (; panel < end; ++panel)
            for (int64_t column = 0; column < kPanel; column += kColumns) {
                const int64_t at = panel * kPanel + column;
                if (at >= asked.n_columns) return;
                V sums[N][kVectors] = {};
                add_terms<N>(asked.panels + panel * width * kPanel + column, sums);
                const int64_t n = std::min<int64_t>(kColumns, asked.n_columns - at);
                for (int r = 0; r < N; ++r)
                    std::memcpy(asked.out + (first + r) * asked.n_columns + at, sums[r], size_t(n) * sizeof(float));
            }
    }

    // Whole panels of one signal at a time, whose sums are independent.
    static constexpr int kTogether = 4;
    void add_panels(const float* panels, float* out) const {
        constexpr int kParts = int(kPanel) / kLanes<V>;
        const int64_t width = signals_.width;
        V sums[kTogether][kParts] = {};
        for (int64_t f = 0; f < width; ++f) {
            const V one = splat<V>(values_[f]);
#pragma GCC unroll 4
            for (int p = 0; p < kTogether; ++p)
                for (int v = 0; v < kParts; ++v)
                    sums[p][v] = sums[p][v] + load<V>(panels + (p * width + f) * kPanel + v * kLanes<V>) * one;
        }
        std::memcpy(out, sums, sizeof sums);
    }

    template <int N>
    TOPSIGN_INLINE void add_terms(const float* panel, V (&out)[N][kVectors]) const {
        V sums[N][kVectors] = {};
        const float* value = values_.data();
        for (int64_t f = 0; f < signals_.width; ++f, panel += kPanel, value += N) {
            V columns[kVectors];
            for (int v = 0; v < kVectors; ++v) columns[v] = load<V>(panel + v * kLanes<V>);
#pragma GCC unroll 12
            for (int r = 0; r < N; ++r) {
                const V one = splat<V>(value[r]);
                for (int v = 0; v < kVectors; ++v) sums[r][v] = sums[r][v] + columns[v] * one;
            }
        }
        std::memcpy(out, sums, sizeof sums);
    }

    const ts_rows& signals_;
    const float* const factors_;
    std::vector<float> values_;  // values of a tile of signals, transposed
};

template <class Isa>
void multiply(int n_threads, const ts_rows& signals, const float* factors, const ts_product* products,
              int64_t n_products) {
    constexpr int64_t kRows = Products<Isa>::kRows;
    struct Item {
        const ts_product* product;
        int64_t first, n, begin, end;
    };
    std::vector<Item> items;
    double nanoseconds = 0;
    for (const ts_product* one = products; one != products + n_products; ++one) {
        const int64_t n_panels = ceil_div(one->n_columns, kPanel), n_tiles = ceil_div(one->count, kRows);
        // Several items per thread, so that threads finish together.
        const int64_t at_a_time = std::clamp<int64_t>(n_panels * n_tiles / (4 * n_threads), 1, kPanelsAtATime);
        // With few signals, reading the matrix dominates, and many threads together read it faster than a few do.
        nanoseconds += std::max(1.0, 0.03 * double(one->count)) * double(one->n_columns) * double(signals.width);
        for (int64_t first = 0; first < one->count; first += kRows)
            for (int64_t begin = 0; begin < n_panels; begin += at_a_time)
                items.push_back(
                    {one, first, std::min(kRows, one->count - first), begin, std::min(n_panels, begin + at_a_time)});
    }
    const double each = nanoseconds / double(std::max<size_t>(1, items.size()));
    parallel_items(n_threads, int64_t(items.size()), each, [&] {
        return [&, tiles = Products<Isa>(signals, factors)](int64_t i) mutable {
            const Item& item = items[i];
            tiles.multiply(*item.product, item.first, item.n, item.begin, item.end);
        };
    });
}

}  // namespace
}  // namespace topsign
