// Rounded sums of up to 64 queries with a code, and the test against their bounds.
#pragma once

#include <functional>
#include <limits>

#include "few_scores.h"

namespace topsign {
namespace {

constexpr int64_t kScoreTile = 64;  // queries that share a table

struct alignas(64) TileSums {
    int32_t sum[kScoreTile];
};

// Slot of query q among the sums: the even values of a register come first, then the odd ones.
template <int kPerRegister>
int slot_of(int64_t q) {
    return int(q / kPerRegister * kPerRegister + q % 2 * (kPerRegister / 2) + q % kPerRegister / 2);
}

// Steps and margins of up to 64 queries; zero for missing ones.
struct Steps {
    alignas(64) float steps[kScoreTile] = {}, margins[kScoreTile] = {};
};

// Bit mask of the slots whose rounded sums reach their bounds; `coarse` sums are added if given.
template <class Isa>
uint64_t reaching(const Steps& tile, const TileSums& sums, float weight, const float* bounds,
                  const Steps* coarse = nullptr, const TileSums* coarse_sums = nullptr) {
    using V = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, kLanes<V>>;
    const V flip = splat<V>(weight < 0 ? -1.f : 1.f);  // a negative weight swaps the ends of the margin
    const auto reaches = [&](int at) {
        V sum = convert<V>(load<Ints>(sums.sum + at)) * load<V>(tile.steps + at);
        if (coarse) sum = convert<V>(load<Ints>(coarse_sums->sum + at)) * load<V>(coarse->steps + at) + sum;
        return (sum + load<V>(tile.margins + at) * flip) * splat<V>(weight) >= load<V>(bounds + at);
    };
    Ints some{};
    for (int at = 0; at < kScoreTile; at += kLanes<V>) some = some | reaches(at);
    uint64_t found = 0;
    if (any(some))
        for (int at = 0; at < kScoreTile; at += kLanes<V>) {
            const Ints lanes = reaches(at);
            for (int lane = 0; lane < kLanes<V>; ++lane) found |= uint64_t(lanes[lane] & 1) << (at + lane);
        }
    return found;
}

// The bounds of the queries by slot, and the exact scores of codes that may enter.
template <class Isa, int kPerRegister, class Collector>
class ScoreBounds {
   public:
    ScoreBounds(const ts_codes& codes, const ts_rows& queries, Collector* best)
        : n_queries_(queries.count), best_(best), exact_(codes, queries, {nullptr, queries.count}, best) {
        std::fill(at, at + kScoreTile, std::numeric_limits<float>::infinity());
        std::fill(expected_, expected_ + kScoreTile, -std::numeric_limits<float>::infinity());
        for (int q = 0; q < n_queries_; ++q) query_at_[slot_of<kPerRegister>(q)] = q;
        refresh();
    }

    // Re-reads the bounds, which other threads lower.
    void refresh() {
        for (int q = 0; q < n_queries_; ++q) set(slot_of<kPerRegister>(q), q);
    }

    // For queries without a bound, derives one from the rounded sums of these codes: a score that as many of them as
    // are wanted reach, so that few of the others need an exact sum.
    void expect(const Steps& tile, const ts_codes& codes, const TileSums* sums, const int64_t* positions, int64_t n) {
        std::vector<float> least(n);
        for (int q = 0; q < n_queries_; ++q) {
            const int64_t wanted = best_[q].wanted();
            if (wanted > n || best_[q].bound() < std::numeric_limits<float>::max()) continue;
            const int slot = slot_of<kPerRegister>(q);
            for (int64_t c = 0; c < n; ++c) {
                const float weight = weight_of(codes, positions[c]);
                const float margin = weight < 0 ? -tile.margins[slot] : tile.margins[slot];
                const float score = (float(sums[c].sum[slot]) * tile.steps[slot] - margin) * weight;
                least[c] = score == score ? score : -std::numeric_limits<float>::infinity();
            }
            std::nth_element(least.begin(), least.begin() + (wanted - 1), least.end(), std::greater<>());
            expected_[slot] = least[wanted - 1];
            set(slot, q);
        }
    }

    void offer(uint64_t hits, int64_t i) {
        for (; hits; hits &= hits - 1) {
            const int slot = count_trailing_zeros(hits), q = query_at_[slot];
            exact_.offer(i, q);
            set(slot, q);
        }
    }

    alignas(64) float at[kScoreTile];

   private:
    void set(int slot, int q) { at[slot] = std::max(-best_[q].bound(), expected_[slot]); }

    const int64_t n_queries_;
    float expected_[kScoreTile];
    Collector* best_;
    ExactScores<Isa, Collector> exact_;
    int query_at_[kScoreTile] = {};
};

}  // namespace
}  // namespace topsign
