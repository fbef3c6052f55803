// Exact scores of codes whose rounded sums may enter the result.
#pragma once

#include <optional>

#include "../core/collect.h"
#include "rounding.h"
#include "rows.h"
#include "sums.h"

namespace topsign {
namespace {

// The exact score of a code, offered as a key; smaller is better.
template <class Collector>
void offer_score(Collector& best, float sum, const ts_codes& codes, int64_t i) {
    const float key = -(codes.weights ? sum * codes.weights[i] : sum);
    if (key < best.bound()) best.offer(key, i);
}

// Offers exact scores of codes; a code is unpacked once for consecutive queries.
template <class Isa, class Collector>
class ExactScores {
   public:
    ExactScores(const ts_codes& codes, const ts_rows& values, const QueryList& queries, Collector* best)
        : codes_(codes), values_(values), queries_(queries), best_(best) {}

    void offer(int64_t i, int64_t q) {
        const Layout layout(codes_.layout);
        const float* query = values_.values + queries_[q] * values_.width;
        if (layout.signs()) {
            const uint8_t* const code = codes_.data + i * layout.code_bytes();
            offer_score(best_[q], sum_signs<Isa>(code, layout.n_pool, query), codes_, i);
            return;
        }
        if (!reader_)
            reader_.emplace(layout, codes_.data,
                            codes_.count);  // created on first use, because most small ranges need none
        if (i != at_) kept_ = (*reader_)(i);
        at_ = i;
        offer_score(best_[q], Isa::sum_kept(kept_, layout.n_bits, query), codes_, i);
    }

   private:
    const ts_codes& codes_;
    const ts_rows values_;
    const QueryList queries_;
    Collector* best_;
    std::optional<KeptReader<Isa>> reader_{};
    int64_t at_ = -1;
    const uint32_t* kept_ = nullptr;
};

inline float weight_of(const ts_codes& codes, int64_t i) { return codes.weights ? codes.weights[i] : 1.f; }

// Whether a code with this rounded sum could enter.
template <class Value, class Collector>
bool may_enter(const RoundedTo<Value>& rounded, int64_t q, int64_t sum, float weight, const Collector& best) {
    const float margin = weight < 0 ? -rounded.margins[q] : rounded.margins[q];
    return !((float(sum) * rounded.steps[q] + margin) * weight < -best.bound());
}

// Lower limits of the rounded sums that may enter, one per query, which test four codes at once. They are slightly too
// low, because may_enter() decides. Weighted codes always pass.
template <int64_t kMost, class Collector>
class SumFloors {
   public:
    SumFloors(const Rounded& rounded, const ts_codes& codes, const QueryList& queries, const Collector* best)
        : rounded_(rounded), is_weighted_(codes.weights != nullptr), queries_(queries), best_(best) {
        for (int64_t q = 0; q < queries.count; ++q) refresh(q);
    }

    // Recomputes the floor after the bound has changed.
    void refresh(int64_t q) {
        const double step = rounded_.steps[queries_[q]], margin = rounded_.margins[queries_[q]];
        const double bound = best_[q].bound();
        const double slack = 2 + 1e-6 * (std::abs(bound) + margin) / step;  // of float32 arithmetic
        const double floor = (-bound - margin) / step - slack;
        const bool is_known = !is_weighted_ && floor > -0x1p30;  // false for nan
        floors_[q] = splat<Ints>(is_known ? int32_t(std::min(floor, 0x1p30)) : INT32_MIN);
    }

    // Whether one of four codes reaches the floor of a query; sums[query][code].
    TOPSIGN_INLINE bool any_reached(const int32_t (*sums)[4]) const {
        Ints reached{};
        for (int64_t q = 0; q < queries_.count; ++q) reached = reached | (load<Ints>(sums[q]) >= floors_[q]);
        return any(reached);
    }

   private:
    using Ints = Vec<int32_t, 4>;

    const Rounded& rounded_;
    const bool is_weighted_;
    const QueryList queries_;
    const Collector* const best_;
    Ints floors_[kMost];
};

}  // namespace
}  // namespace topsign
