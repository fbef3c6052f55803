// Choice of regions: those nearest to a query, until they are enough and hold enough entries.
#pragma once

#include <cmath>
#include <vector>

#include "byte_products.h"

namespace topsign {
namespace {

constexpr int32_t kMeanMiddle = 64;  // the byte of a mean that stands for 0

// Queries as signed bytes, each with its own step.
class ByteQueries {
   public:
    ByteQueries(const ts_rows& queries, int64_t first, int64_t count, int64_t width)
        : bytes_(count * width), steps_(count), offsets_(count) {
        for (int64_t q = 0; q < count; ++q) {
            const float* const values = queries.values + (first + q) * queries.width;
            float peak = 0;
            for (int64_t i = 0; i < queries.width; ++i) peak = std::max(peak, std::fabs(values[i]));
            const float step = peak > 0 ? peak / 127.f : 1.f;
            int32_t sum = 0;
            for (int64_t i = 0; i < queries.width; ++i) {
                const auto rounded = int8_t(std::nearbyint(values[i] / step));
                bytes_[q * width + i] = rounded;
                sum += rounded;
            }
            steps_[q] = step;
            offsets_[q] = kMeanMiddle * sum;
        }
    }

    const int8_t* bytes() const { return bytes_.data(); }
    float step(int64_t q) const { return steps_[q]; }
    int32_t offset(int64_t q) const { return offsets_[q]; }

   private:
    std::vector<int8_t> bytes_;
    std::vector<float> steps_;
    std::vector<int32_t> offsets_;
};

// Scores of all regions for some queries, (count, n_regions): larger is nearer.
template <class Isa>
void score_regions(int n_threads, const ts_regions& regions, const ts_rows& queries, int64_t first, int64_t count,
                   float* scores) {
    const ByteQueries rounded(queries, first, count, regions.width);
    const ts_bytes bytes{rounded.bytes(), regions.means, count, regions.n_regions, regions.width};
    for_each_product<Isa>(n_threads, bytes, [&](int64_t q, int64_t r, int32_t sum) {
        const double product = double(sum - rounded.offset(q)) * double(regions.scales[r]) * double(rounded.step(q));
        scores[q * regions.n_regions + r] = float(product - double(regions.half_norms[r]));
    });
}

// The nearest regions of one query, of equal scores the lower one first.
class NearestRegions {
   public:
    // Takes at least n_regions, and enough to hold n_entries.
    const std::vector<int32_t>& choose(const float* scores, const ts_regions& regions, int64_t n_regions,
                                       int64_t n_entries) {
        n_regions = std::min(n_regions, regions.n_regions);
        // Half of the queries need more regions than their stratum on average.
        for (int64_t wanted = std::min(2 * n_regions, regions.n_regions);;
             wanted = std::min(2 * wanted, regions.n_regions)) {
            take(scores, regions.n_regions, wanted);
            chosen_.clear();
            int64_t entries = 0;
            for (const Scored& one : nearest_) {
                if (int64_t(chosen_.size()) >= n_regions && entries >= n_entries) return chosen_;
                chosen_.push_back(one.region);
                entries += regions.counts[one.region];
            }
            if (wanted == regions.n_regions || (entries >= n_entries && int64_t(chosen_.size()) >= n_regions))
                return chosen_;
        }
    }

   private:
    struct Scored {
        float score;
        int32_t region;
        bool operator<(const Scored& other) const {
            return score != other.score ? score > other.score : region < other.region;
        }
    };

    // The nearest `wanted` in order. A sample of the scores gives a bound that few regions reach; if too few do, all
    // are compared.
    void take(const float* scores, int64_t count, int64_t wanted) {
        constexpr int64_t kStride = 16;
        const int64_t n_sample = count / kStride, rank = wanted * 2 / kStride + 4;
        nearest_.clear();
        if (rank < n_sample) {
            sample_.clear();
            for (int64_t i = 0; i < n_sample; ++i) sample_.push_back(scores[i * kStride]);
            std::nth_element(sample_.begin(), sample_.begin() + rank, sample_.end(), std::greater<float>());
            const float bound = sample_[rank];
            for (int64_t r = 0; r < count; ++r)
                if (scores[r] >= bound) nearest_.push_back({scores[r], int32_t(r)});
        }
        if (int64_t(nearest_.size()) < wanted) {
            nearest_.clear();
            for (int64_t r = 0; r < count; ++r) nearest_.push_back({scores[r], int32_t(r)});
        }
        std::nth_element(nearest_.begin(), nearest_.begin() + (wanted - 1), nearest_.end());
        nearest_.resize(wanted);
        std::sort(nearest_.begin(), nearest_.end());
    }

    std::vector<float> sample_{};
    std::vector<Scored> nearest_{};
    std::vector<int32_t> chosen_{};
};

template <class Isa>
void choose_regions(int n_threads, const ts_regions& regions, const ts_region_rule& rule, const ts_rows& queries,
                    const ts_region_choice& choice) {
    constexpr int64_t kQueries = 16;  // whose scores are held at a time by a thread
    const int64_t n_tiles = ceil_div(queries.count, kQueries);
    const bool apart = n_tiles >= n_threads;  // else threads share the regions of a tile
    std::vector<std::vector<int32_t>> chosen(queries.count);
    const double each = double(regions.n_regions) * (0.03 * double(regions.width) + 3) * kQueries;
    parallel_for(apart ? n_threads : 1, n_tiles, each, [&](int64_t begin, int64_t end) {
        NearestRegions nearest;
        std::vector<float> scores(std::min(kQueries, queries.count) * regions.n_regions);
        for (int64_t tile = begin; tile < end; ++tile) {
            const int64_t first = tile * kQueries, count = std::min(kQueries, queries.count - first);
            score_regions<Isa>(apart ? 1 : n_threads, regions, queries, first, count, scores.data());
            for (int64_t q = 0; q < count; ++q) {
                const float* const mine = scores.data() + q * regions.n_regions;
                const float best = *std::max_element(mine, mine + regions.n_regions);
                choice.best[first + q] = best;
                const int64_t stratum =
                    std::upper_bound(rule.edges, rule.edges + rule.n_strata - 1, double(best)) - rule.edges;
                if (double(best) >= rule.least && rule.n_regions[stratum] > 0)
                    chosen[first + q] = nearest.choose(mine, regions, rule.n_regions[stratum], rule.n_entries[stratum]);
            }
        }
    });
    choice.starts[0] = 0;
    for (int64_t q = 0; q < queries.count; ++q) {
        choice.starts[q + 1] = choice.starts[q] + int64_t(chosen[q].size());
        if (choice.starts[q + 1] <= choice.capacity)
            std::copy(chosen[q].begin(), chosen[q].end(), choice.regions + choice.starts[q]);
    }
}

}  // namespace
}  // namespace topsign
