// Searches of regions: a query chooses the regions nearest to it, the codes there are compared, and the best of them
// may be compared by original signals.
#pragma once

#include "originals.h"
#include "prepare.h"
#include "search.h"

namespace topsign {
namespace {

constexpr int kGroup = 16;             // means that are interleaved
constexpr int32_t kMeanMiddle = 64;    // the byte of a mean that stands for 0
constexpr int64_t kContrastRank = 16;  // the contrast of a query is that of its best score to this one
constexpr int64_t kOrdered = 24;       // regions that are visited in order; the others follow in that of memory

// Integers nearest to floats of magnitude below 2^22, ties to even.
template <class V>
TOPSIGN_INLINE V nearest_integers(V values) {
    const V magic = splat<V>(12582912.f);
    return (values + magic) - magic;
}

// A query as signed bytes with a step.
template <class Isa>
class ByteQuery {
    using Floats = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, Isa::kBytes / 4>;

   public:
    explicit ByteQuery(int64_t width) : values_(width), bytes_(width) {}  // a multiple of 64

    void enter(const float* values, int64_t n) {
        constexpr int kWidth = kLanes<Floats>;
        std::copy_n(values, n, values_.begin());
        Floats peaks{};
        for (size_t i = 0; i < values_.size(); i += kWidth) {
            const Floats some = load<Floats>(values_.data() + i);
            peaks = max_of(peaks, max_of(some, Floats{} - some));
        }
        float peak = 0;
        for (int i = 0; i < kWidth; ++i) peak = std::max<float>(peak, peaks[i]);
        step = peak > 0 ? peak / 127.f : 1.f;
        Ints sums{};
        for (size_t i = 0; i < values_.size(); i += kWidth) {
            const Ints rounded =
                convert<Ints>(nearest_integers(load<Floats>(values_.data() + i) / splat<Floats>(step)));
            sums = sums + rounded;
            Isa::narrow(rounded, bytes_.data() + i);
        }
        offset = 0;
        for (int i = 0; i < kWidth; ++i) offset += kMeanMiddle * sums[i];
    }
    const uint8_t* bytes() const { return bytes_.data(); }

    float step = 1;
    int32_t offset = 0;

   private:
    std::vector<float> values_;
    std::vector<uint8_t> bytes_;
};

// Scores of the means of some groups: larger is nearer.
template <class Isa>
void score_means(const ts_means& means, const ByteQuery<Isa>& query, int64_t begin, int64_t end, float* scores) {
    using V = Vec<uint8_t, Isa::kBytes>;
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    using Floats = Vec<float, Isa::kBytes / 4>;
    constexpr int kParts = 4 * kGroup / Isa::kBytes, kWidth = kLanes<Ints>, kChains = 4 / kParts > 0 ? 4 / kParts : 1;
    const int64_t n_steps = means.width / 4;  // a multiple of 16
    const Floats step = splat<Floats>(query.step);
    const Ints offset = splat<Ints>(query.offset);
    for (int64_t g = begin; g < end; ++g, scores += kGroup) {
        const uint8_t* values = means.values + g * kGroup * means.width;
        Ints sums[kChains][kParts] = {};
        for (int64_t i = 0; i < n_steps; i += kChains)
            for (int c = 0; c < kChains; ++c, values += 4 * kGroup) {
                const Ints four = splat<Ints>(load<int32_t>(query.bytes() + 4 * (i + c)));
                for (int p = 0; p < kParts; ++p)
                    sums[c][p] = Isa::add_byte_products(sums[c][p], load<V>(values + p * Isa::kBytes), four);
            }
        for (int p = 0; p < kParts; ++p) {
            for (int c = 1; c < kChains; ++c) sums[0][p] = sums[0][p] + sums[c][p];
            const int64_t at = g * kGroup + p * kWidth;
            const Floats scale = load<Floats>(means.scales + at) * step;
            const Floats product = convert<Floats>(sums[0][p] - offset) * scale;
            store(scores + p * kWidth, product - load<Floats>(means.half_norms + at));
        }
    }
}

struct ScoredRegion {
    float score;
    int32_t region;
    bool operator<(const ScoredRegion& other) const {
        return score != other.score ? score > other.score : region < other.region;
    }
};

// A score that at least `wanted` of n exceed, and not many more unless they are equal; n is a multiple of kGroup.
template <class Isa>
float cut_scores(const float* scores, int64_t n, int64_t wanted) {
    using V = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    constexpr float kLowest = -1e30f;
    V high = splat<V>(kLowest);
    for (int64_t i = 0; i < n; i += kLanes<V>) high = max_of(high, load<V>(scores + i));
    float top = kLowest, low = kLowest;
    for (int i = 0; i < kLanes<V>; ++i) top = std::max<float>(top, high[i]);
    float width = 0.02f;  // scores lie within about 1 of each other
    for (int round = 0; round < 40; ++round) {
        const float middle = low == kLowest ? top - width : 0.5f * (low + top);
        if (low == kLowest) width *= 2;
        Ints reached{};
        for (int64_t i = 0; i < n; i += kLanes<V>) reached = reached - (load<V>(scores + i) > splat<V>(middle));
        int64_t count = 0;
        for (int i = 0; i < kLanes<Ints>; ++i) count += reached[i];
        if (count >= wanted) {
            low = middle;
            if (count <= wanted + wanted / 4) break;
        } else if (low != kLowest) {
            top = middle;
        }
    }
    return low;
}

// Choice of the regions of one query after the other.
template <class Isa>
class RegionChooser {
   public:
    explicit RegionChooser(const ts_regions& regions)
        : regions_(regions),
          query_(regions.fine.width),
          coarse_scores_(regions.coarse.n_groups * kGroup),
          scores_(new float[regions.fine.n_groups * kGroup]),
          numbers_(new int32_t[regions.fine.n_groups * kGroup]) {}

    // Chooses the regions of a unit query and returns its stratum; the stratum after the last is that of queries unlike
    // all others. A stratum without regions visits all entries, and none are chosen.
    int64_t choose(const float* unit, int64_t n_features, const ts_region_rule& rule) {
        query_.enter(unit, n_features);
        n_scored_ = n_coarse_ = 0;
        chosen_.clear();
        score_means<Isa>(regions_.coarse, query_, 0, regions_.coarse.n_groups, coarse_scores_.data());
        coarse_.clear();
        for (int64_t c = 0; c < regions_.n_coarse; ++c) coarse_.push_back({coarse_scores_[c], int32_t(c)});
        widen(rule.base_coarse);
        take(std::min(kContrastRank, n_regions()));
        best = nearest_.front().score;
        contrast = best - nearest_.back().score;
        if (double(best) < rule.least) return rule.n_strata;
        const int64_t stratum =
            std::upper_bound(rule.edges, rule.edges + rule.n_strata - 1, double(contrast)) - rule.edges;
        if (rule.n_regions[stratum] > 0) {
            widen(rule.n_coarse[stratum]);
            choose_nearest(rule.n_regions[stratum], rule.n_entries[stratum]);
        }
        return stratum;
    }

    // The first ones nearest first, the others in order.
    const std::vector<int32_t>& chosen() const { return chosen_; }

    float best = 0, contrast = 0;

   private:
    // Scores the regions of the n nearest coarse means.
    void widen(int64_t n) {
        n = std::min(n, regions_.n_coarse);
        if (n <= n_coarse_) return;
        if (n < regions_.n_coarse)
            std::nth_element(coarse_.begin() + n_coarse_, coarse_.begin() + (n - 1), coarse_.end());
        std::sort(coarse_.begin() + n_coarse_, coarse_.begin() + n,
                  [](const ScoredRegion& a, const ScoredRegion& b) { return a.region < b.region; });
        for (; n_coarse_ < n; ++n_coarse_) {
            const int32_t c = coarse_[n_coarse_].region;
            const int64_t begin = regions_.first[c], end = regions_.first[c + 1], count = (end - begin) * kGroup;
            score_means<Isa>(regions_.fine, query_, begin, end, scores_.get() + n_scored_);
            std::copy_n(regions_.numbers + begin * kGroup, count, numbers_.get() + n_scored_);
            n_scored_ += count;
        }
    }

    // Number of regions that are scored.
    int64_t n_regions() const { return n_scored_ - std::count(numbers_.get(), numbers_.get() + n_scored_, -1); }

    // The nearest `wanted` regions, in order.
    void take(int64_t wanted) {
        const float bound = cut_scores<Isa>(scores_.get(), n_scored_, wanted);
        nearest_.clear();
        for (int64_t i = 0; i < n_scored_; ++i)
            if (scores_[i] > bound) nearest_.push_back({scores_[i], numbers_[i]});
        if (int64_t(nearest_.size()) > wanted) {
            std::nth_element(nearest_.begin(), nearest_.begin() + (wanted - 1), nearest_.end());
            nearest_.resize(wanted);
        }
        std::sort(nearest_.begin(), nearest_.end());
    }

    // At least n regions, and enough to hold n_entries.
    void choose_nearest(int64_t n, int64_t n_entries) {
        for (int64_t wanted = n;; wanted *= 2) {
            const int64_t available = n_regions();
            take(std::min(wanted, available));
            int64_t entries = 0, used = 0;
            for (const ScoredRegion& one : nearest_) {
                if (used >= n && entries >= n_entries) break;
                entries += regions_.counts[one.region];
                ++used;
            }
            if ((used >= n && entries >= n_entries) || (available <= wanted && n_coarse_ == regions_.n_coarse)) {
                nearest_.resize(used);
                break;
            }
            if (available <= wanted) widen(2 * n_coarse_);
        }
        for (const ScoredRegion& one : nearest_) chosen_.push_back(one.region);
        if (int64_t(chosen_.size()) > kOrdered) std::sort(chosen_.begin() + kOrdered, chosen_.end());
    }

    const ts_regions& regions_;
    ByteQuery<Isa> query_;
    std::vector<float> coarse_scores_;
    std::unique_ptr<float[]> scores_;     // of the regions of the nearest coarse means
    std::unique_ptr<int32_t[]> numbers_;  // their regions
    std::vector<int32_t> chosen_{};
    std::vector<ScoredRegion> coarse_{}, nearest_{};
    int64_t n_scored_ = 0, n_coarse_ = 0;
};

// Blocks of the codes in some regions.
inline void list_blocks(const ts_region_codes& codes, int64_t code_bytes, const int32_t* begin, const int32_t* end,
                        std::vector<Listed>& list) {
    list.clear();
    for (const int32_t* region = begin; region != end; ++region)
        for (int64_t i = codes.starts[*region]; i < codes.starts[*region + 1]; ++i) {
            const ts_region_range& range = codes.ranges[i];
            const ts_codes& segment = codes.segments.ranges[range.segment];
            const int64_t last = (int64_t(range.end) - 1) / kBlock;
            for (int64_t b = range.begin / kBlock; b <= last; ++b) {
                uint32_t mask = ~uint32_t(0);
                if (b == range.begin / kBlock) mask &= ~uint32_t(0) << (range.begin % kBlock);
                if (b == last) mask &= ~uint32_t(0) >> (kBlock - 1 - (range.end - 1) % kBlock);
                mask &= living(segment, b);
                const uint8_t* const block = segment.planes + b * code_bytes * kBlock;
                if (!list.empty() && list.back().block == block)
                    list.back().mask |= mask;
                else if (mask)
                    list.push_back({block, &segment, b, mask});
            }
        }
}

// Calls use(scan) with the comparison of single queries with codes of their own: by tables, unless there are none.
template <class Isa, class Use>
void with_single_scan(int n_threads, const ts_scoring& scoring, const ts_queries& queries, const Use& use) {
    if (scoring.kind == TS_RING)
        use(RingScan<Isa>(n_threads, scoring, queries));
    else if (scoring.kind == TS_KEPT)
        use(KeptScan<Isa>(n_threads, scoring, queries));
    else
        use(NibbleScan<Isa>(n_threads, scoring, queries));
}

// Regions of each query, chosen in parallel.
template <class Isa>
struct ChosenRegions {
    std::vector<std::vector<int32_t>> regions;
    std::vector<int64_t> strata;

    ChosenRegions(int n_threads, const ts_regions& asked, const ts_region_rule& rule, const ts_rows& units, float* best,
                  float* contrasts)
        : regions(units.count), strata(units.count) {
        const double each = 0.01 * double(asked.fine.n_groups * kGroup * asked.fine.width) + 5000;
        parallel_items(n_threads, units.count, each, [&] {
            const auto chooser = std::make_shared<RegionChooser<Isa>>(asked);
            return [&, chooser](int64_t q) {
                strata[q] = chooser->choose(units.values + q * units.width, units.width, rule);
                regions[q] = chooser->chosen();
                best[q] = chooser->best;
                contrasts[q] = chooser->contrast;
            };
        });
    }
};

template <class Isa>
void choose_regions(int n_threads, const ts_regions& regions, const ts_region_rule& rule, const ts_rows& units,
                    const ts_region_choice& choice) {
    const ChosenRegions<Isa> chosen(n_threads, regions, rule, units, choice.best, choice.contrasts);
    choice.starts[0] = 0;
    for (int64_t q = 0; q < units.count; ++q) {
        const auto& mine = chosen.regions[q];
        choice.strata[q] = int32_t(chosen.strata[q]);
        choice.starts[q + 1] = choice.starts[q] + int64_t(mine.size());
        if (choice.starts[q + 1] <= choice.capacity)
            std::copy(mine.begin(), mine.end(), choice.regions + choice.starts[q]);
    }
}

// Compares each query with the codes in its regions; chosen(q) returns their begin and end.
template <class Isa, class Chosen>
void visit_regions(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_queries& queries,
                   std::deque<Top>& tops, const Chosen& chosen, int64_t* visited) {
    int64_t n_codes = 0;
    for (int64_t s = 0; s < codes.segments.count; ++s) n_codes += codes.segments.ranges[s].count;
    for_some_queries(scoring, queries, [&](const ts_queries& some, int64_t first) {
        with_single_scan<Isa>(n_threads, scoring, some, [&](const auto& scan) {
            using Worker = typename std::decay_t<decltype(scan)>::Worker;
            parallel_items(n_threads, some.count, 0.05 * double(n_codes) + 5000, [&] {
                const auto worker = std::make_shared<Worker>(scan);
                return [&, worker, list = std::vector<Listed>()](int64_t q) mutable {
                    const auto [begin, end] = chosen(first + q);
                    list_blocks(codes, scoring.code_bytes, begin, end, list);
                    Best best(tops[first + q]);
                    best.begin(1, false);
                    if (!list.empty()) worker->scan(list.data(), int64_t(list.size()), q, q + 1, &best);
                    best.finish();
                    int64_t n = 0;
                    for (const Listed& one : list) n += count_ones(one.mask);
                    visited[first + q] = n;
                };
            });
        });
    });
}

template <class Isa>
void visit(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_visits& visits,
           const ts_queries& queries, const ts_best& best) {
    std::deque<Top> tops;
    std::vector<int64_t> visited(queries.count);
    for (int64_t q = 0; q < queries.count; ++q) tops.emplace_back(best.k);
    visit_regions<Isa>(
        n_threads, scoring, codes, queries, tops,
        [&](int64_t q) {
            return std::make_pair(visits.regions + visits.starts[q], visits.regions + visits.starts[q + 1]);
        },
        visited.data());
    for (int64_t q = 0; q < queries.count; ++q) tops[q].write(best.values + q * best.k, best.rows + q * best.k);
}

// One search: choice of regions, visits, exhaustive comparison of the queries that need it, and exact comparison.
template <class Isa>
void search_regions(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_regions& regions,
                    const ts_region_rule& rule, const ts_rows& units, const ts_queries& queries,
                    const ts_originals* originals, const ts_neighbors& out) {
    const ChosenRegions<Isa> chosen(n_threads, regions, rule, units, out.best, out.contrasts);
    std::deque<Top> tops;
    std::vector<int64_t> wide;
    for (int64_t q = 0; q < queries.count; ++q) {
        const int64_t stratum = chosen.strata[q];
        out.strata[q] = int32_t(stratum);
        tops.emplace_back(std::max(out.k, originals ? rule.n_candidates[stratum] : 0));
        if (rule.n_regions[stratum] == 0) wide.push_back(q);
    }
    visit_regions<Isa>(
        n_threads, scoring, codes, queries, tops,
        [&](int64_t q) {
            const auto& mine = chosen.regions[q];
            return std::make_pair(mine.data(), mine.data() + mine.size());
        },
        out.visited);
    if (!wide.empty()) {
        int64_t n_living = 0;
        for (int64_t s = 0; s < codes.segments.count; ++s)
            for (int64_t b = 0; b < n_blocks(codes.segments.ranges[s]); ++b)
                n_living += count_ones(living(codes.segments.ranges[s], b));
        std::vector<int16_t> values;
        std::vector<float> scales, constants;
        for (const int64_t q : wide) {
            const int16_t* const from = queries.values + q * scoring.width;
            values.insert(values.end(), from, from + scoring.width);
            scales.push_back(queries.scales[q]);
            constants.push_back(queries.constants[q]);
            out.visited[q] = n_living;
        }
        const ts_queries all{values.data(), scales.data(), constants.data(), int64_t(wide.size())};
        for_some_queries(scoring, all, [&](const ts_queries& some, int64_t first) {
            std::vector<Best> collectors;
            for (int64_t i = 0; i < some.count; ++i) collectors.emplace_back(tops[wide[first + i]]);
            with_scan<Isa>(n_threads, scoring, some,
                           [&](const auto& scan) { scan_all(n_threads, scoring, codes.segments, scan, collectors); });
        });
    }
    parallel_items(n_threads, queries.count, originals ? 20000 : 500, [&] {
        return [&, exact = ExactComparison<Isa>(originals)](int64_t q) mutable {
            std::vector<Kept> found = tops[q].sorted();
            if (originals) exact.rank(codes.segments, q, found);
            for (int64_t i = 0; i < out.k; ++i) {
                const int64_t at = q * out.k + i;
                const bool is_found = i < int64_t(found.size());
                out.rows[at] = is_found ? found[i].row : -1;
                out.ids[at] = is_found ? found[i].id : -1;
                if (!is_found) continue;
                out.values[at] = found[i].value;
                if (!originals) continue;
                out.inner[at] = exact.results()[i].inner;
                out.correlations[at] = exact.results()[i].correlation;
            }
        };
    });
}

template <class Isa>
void search_plan(int n_threads, const ts_region_plan& plan, const ts_rows& signals, double* norms,
                 const ts_neighbors& found) {
    const int64_t n = signals.count, n_coded = plan.preparation->n_coded;
    std::vector<float> units(n * signals.width), numbers(2 * n);
    std::vector<int16_t> values(n * n_coded);
    prepare_queries<Isa>(n_threads, *plan.preparation, signals,
                         {norms, units.data(), values.data(), numbers.data(), numbers.data() + n});
    ts_originals originals{};
    if (plan.originals) {
        originals = *plan.originals;
        originals.queries = signals;
    }
    search_regions<Isa>(n_threads, *plan.scoring, *plan.codes, *plan.regions, *plan.rule,
                        {units.data(), n, signals.width}, {values.data(), numbers.data(), numbers.data() + n, n},
                        plan.originals ? &originals : nullptr, found);
}

}  // namespace
}  // namespace topsign
