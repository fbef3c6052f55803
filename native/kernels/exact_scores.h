// Exact scores of the codes that may enter, as their rounded sums say.
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

// Offers a code's exact scores to the queries that ask, the code being unpacked at the first.
template <class Isa, class Collector>
class ExactScores {
   public:
    ExactScores(const ts_codes& codes, const ts_rows& queries, Collector* best)
        : codes_(codes), queries_(queries), best_(best) {}

    void offer(int64_t i, int64_t q) {
        const Layout layout(codes_.layout);
        const float* query = queries_.values + q * queries_.width;
        if (layout.signs()) {
            const uint8_t* const code = codes_.data + i * layout.code_bytes();
            offer_score(best_[q], sum_signs<Isa>(code, layout.n_pool, query), codes_, i);
            return;
        }
        if (!reader_) reader_.emplace(layout, codes_.data, codes_.count);  // most small ranges need none
        if (i != at_) kept_ = (*reader_)(i);
        at_ = i;
        offer_score(best_[q], Isa::sum_kept(kept_, layout.n_bits, query), codes_, i);
    }

   private:
    const ts_codes& codes_;
    const ts_rows& queries_;
    Collector* best_;
    std::optional<KeptReader<Isa>> reader_{};
    int64_t at_ = -1;
    const uint32_t* kept_ = nullptr;
};

inline float weight_of(const ts_codes& codes, int64_t i) { return codes.weights ? codes.weights[i] : 1.f; }

// Whether a code whose rounded sum is this could enter.
template <class Value, class Collector>
bool may_enter(const RoundedTo<Value>& rounded, int64_t q, int64_t sum, float weight, const Collector& best) {
    const float margin = weight < 0 ? -rounded.margins[q] : rounded.margins[q];
    return !((float(sum) * rounded.steps[q] + margin) * weight < -best.bound());
}

}  // namespace
}  // namespace topsign
