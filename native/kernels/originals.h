// Exact comparison of queries with original signals: in double precision, in the order of LaneSum.
#pragma once

#include <cmath>
#include <vector>

#include "../core/collect.h"
#include "lane_sums.h"

namespace topsign {
namespace {

// The value of a number of 16 bits, IEEE 754.
inline float half_value(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    if (exponent == 31) bits = sign | 0x7f800000 | fraction << 13;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (exponent == 0) value = (sign ? -1.f : 1.f) * float(fraction) * 0x1p-24f;
    return value;
}

struct ExactScore {
    double inner, correlation;
};

// A code that may be among the best.
struct Candidate {
    float value;
    const ts_codes* codes;
    int64_t position;
    // Whether this code is better.
    bool operator<(const Candidate& other) const {
        if (value != other.value) return value > other.value;
        return id_of(*codes, position) < id_of(*other.codes, other.position);
    }
};

// Exact comparison of one query after the other.
template <class Isa>
class ExactComparison {
   public:
    explicit ExactComparison(const ts_originals* originals) : originals_(originals) {
        if (!originals) return;
        signal_.resize(originals->queries.width + LaneSum::kLanes);
        query_.resize(originals->queries.width);
        middle_.resize(originals->queries.width);
        if (originals->minus) std::copy_n(originals->minus, originals->queries.width, middle_.begin());
    }

    // Moves the k best codes to the front, by their exact scores rounded to float32, and removes the others. Of equal
    // ones the lower id comes first. Returns false if originals must be read first.
    bool rank(const ts_code_ranges& codes, int64_t q, std::vector<Candidate>& found, int64_t k) {
        const auto n = int64_t(found.size());
        const auto segment = [&](int64_t i) { return found[i].codes - codes.ranges; };
        bool is_read = true;
        for (int64_t i = 0; i < n; ++i) is_read &= want(originals_->segments[segment(i)], found[i].position);
        if (!is_read) return false;
        enter(q);
        ranked_.clear();
        for (int64_t i = -kAhead; i < n; ++i) {
            if (i + kAhead < n) prefetch(segment(i + kAhead), found[i + kAhead].position);
            if (i < 0) continue;
            const ExactScore exact = compare(segment(i), found[i].position);
            const auto score = float(originals_->is_inner ? exact.inner : exact.correlation);
            ranked_.push_back({{score, found[i].codes, found[i].position}, found[i].value, exact});
        }
        const int64_t n_kept = std::min(n, k);
        std::partial_sort(ranked_.begin(), ranked_.begin() + n_kept, ranked_.end());
        found.clear();
        results_.clear();
        for (int64_t i = 0; i < n_kept; ++i) {
            found.push_back({ranked_[i].of_code, ranked_[i].codes, ranked_[i].position});
            results_.push_back(ranked_[i].exact);
        }
        return true;
    }
    const std::vector<ExactScore>& results() const { return results_; }

    void compare_all(const ts_code_ranges& codes, const int64_t* rows, int64_t n, double* inner, double* correlations) {
        for (int64_t i = -kAhead; i < n; ++i) {
            if (i + kAhead < n) {
                const auto [segment, position] = place(codes, rows[i + kAhead]);
                prefetch(segment, position);
            }
            if (i < 0) continue;
            const auto [segment, position] = place(codes, rows[i]);
            const ExactScore exact = compare(segment, position);
            inner[i] = exact.inner;
            correlations[i] = exact.correlation;
        }
    }

    void enter(int64_t q) {
        const float* const values = originals_->queries.values + q * int64_t(query_.size());
        for (size_t i = 0; i < query_.size(); ++i) query_[i] = double(values[i]) - middle_[i];
        LaneSum sum;
        for (size_t i = 0; i < query_.size(); ++i) sum.add(int64_t(i), query_[i] * query_[i]);
        norm_ = std::sqrt(sum.total());
    }

    ExactScore compare(int64_t segment, int64_t position) {
        read(originals_->segments[segment], position);
        constexpr int kWidth = Isa::kBytes / 8, kVectors = LaneSum::kLanes / kWidth;
        using V = Vec<double, kWidth>;
        const auto n = int64_t(query_.size());
        V products[kVectors] = {}, squares[kVectors] = {};
        int64_t i = 0;
        for (; i + LaneSum::kLanes <= n; i += LaneSum::kLanes)
            for (int g = 0; g < kVectors; ++g) {
                const int64_t at = i + kWidth * g;
                const V value = Isa::template widen<V>(load<Vec<float, kWidth>>(signal_.data() + at)) -
                                load<V>(middle_.data() + at);
                products[g] = products[g] + value * load<V>(query_.data() + at);
                squares[g] = squares[g] + value * value;
            }
        LaneSum product, square;
        std::memcpy(product.lane, products, sizeof products);
        std::memcpy(square.lane, squares, sizeof squares);
        for (; i < n; ++i) {
            const double value = double(signal_[i]) - middle_[i];
            product.add(i, value * query_[i]);
            square.add(i, value * value);
        }
        const double inner = product.total(), norms = std::sqrt(square.total()) * norm_;
        return {inner, norms > 0 ? inner / norms : 0};
    }

   private:
    struct Ranked : Candidate {  // by its exact score
        float of_code;
        ExactScore exact;
    };

    static constexpr int64_t kAhead = 8;  // signals that are prefetched

    static std::pair<int64_t, int64_t> place(const ts_code_ranges& codes, int64_t row) {
        const ts_codes* const after =
            std::upper_bound(codes.ranges, codes.ranges + codes.count, row,
                             [](int64_t r, const ts_codes& one) { return r < one.first_row; });
        return {after - codes.ranges - 1, row - after[-1].first_row};
    }

    // Whether a signal may be read; if not, its blocks are wanted.
    bool want(const ts_original_rows& rows, int64_t position) const {
        if (!rows.verified) return true;
        bool is_read = true;
        for (int64_t block = position * row_bytes() / originals_->block_bytes;
             block <= ((position + 1) * row_bytes() - 1) / originals_->block_bytes; ++block)
            if (!rows.verified[block]) {
                rows.wanted[block] = 1;
                is_read = false;
            }
        return is_read;
    }

    int64_t row_bytes() const {
        static constexpr int64_t kBytes[] = {4, 2, 1};
        return kBytes[originals_->type] * int64_t(query_.size());
    }

    // Inlined, because GCC removes calls of functions that only prefetch.
    TOPSIGN_INLINE void prefetch(int64_t segment, int64_t position) const {
#if defined(__GNUC__)
        const auto* const at = static_cast<const char*>(originals_->segments[segment].values) + position * row_bytes();
        for (int64_t i = 0; i < row_bytes(); i += 64) __builtin_prefetch(at + i);
        __builtin_prefetch(originals_->segments[segment].scales + position);
#else
        (void)segment, (void)position;
#endif
    }

    // Reads a signal: its values times its scale, in float32.
    void read(const ts_original_rows& rows, int64_t position) {
        const auto n = int64_t(query_.size());
        const auto* const at = static_cast<const uint8_t*>(rows.values) + position * row_bytes();
        if (originals_->type == TS_FLOAT32) {
            std::memcpy(signal_.data(), at, size_t(4 * n));
            return;
        }
        const float scale = rows.scales[position];
        if (originals_->type == TS_FLOAT16) {
            int64_t i = 0;
            for (; i + 8 <= n; i += 8) Isa::widen_halves(at + 2 * i, signal_.data() + i);
            for (; i < n; ++i) signal_[i] = half_value(load<uint16_t>(at + 2 * i));
        } else {
            for (int64_t i = 0; i < n; ++i) signal_[i] = float(int8_t(at[i]));
        }
        if (scale != 1.f)
            for (int64_t i = 0; i < n; ++i) signal_[i] *= scale;
    }

    const ts_originals* originals_;
    std::vector<float> signal_{};
    std::vector<double> query_{}, middle_{};
    std::vector<ExactScore> results_{};
    std::vector<Ranked> ranked_{};
    double norm_ = 0;
};

template <class Isa>
void compare_originals(int n_threads, const ts_code_ranges& codes, const ts_originals& originals, const int64_t* starts,
                       const int64_t* rows, double* inner, double* correlations) {
    const int64_t n_queries = originals.queries.count, total = starts[n_queries];
    constexpr int64_t kPart = 256;  // entries of a query that a thread compares at a time
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t q = 0; q < n_queries; ++q)
        for (int64_t i = starts[q]; i < starts[q + 1]; i += kPart) parts.emplace_back(q, i);
    const double each = 0.3 * double(originals.queries.width) * double(std::min(kPart, total));
    parallel_items(n_threads, int64_t(parts.size()), each, [&] {
        return [&, exact = ExactComparison<Isa>(&originals)](int64_t part) mutable {
            const auto [q, first] = parts[part];
            const int64_t end = std::min(first + kPart, starts[q + 1]);
            exact.enter(q);
            exact.compare_all(codes, rows + first, end - first, inner + first, correlations + first);
        };
    });
}

}  // namespace
}  // namespace topsign
