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
          counts_(new int32_t[regions.fine.n_groups * kGroup]),
          numbers_(new int32_t[regions.fine.n_groups * kGroup]),
          others_(regions.fine.n_groups * kGroup / 64 + 1) {}

    // Chooses the regions of a unit query and returns its stratum; the stratum after the last is that of queries unlike
    // all others. A stratum without regions visits all entries, and none are chosen.
    int64_t choose(const float* unit, int64_t n_features, const ts_region_rule& rule) {
        query_.enter(unit, n_features);
        n_scored_ = n_regions_ = n_coarse_ = 0;
        chosen_.clear();
        score_means<Isa>(regions_.coarse, query_, 0, regions_.coarse.n_groups, coarse_scores_.data());
        coarse_.clear();
        for (int64_t c = 0; c < regions_.n_coarse; ++c) coarse_.push_back({coarse_scores_[c], int32_t(c)});
        widen(rule.base_coarse);
        list_above(cut_scores<Isa>(scores_.get(), n_scored_, std::min(kContrastRank, n_regions_)));
        sort_first(kContrastRank);
        best = nearest_.front().score;
        contrast = best - nearest_[std::min(kContrastRank, n_regions_) - 1].score;
        if (double(best) < rule.least) return rule.n_strata;
        const int64_t stratum =
            std::upper_bound(rule.edges, rule.edges + rule.n_strata - 1, double(contrast)) - rule.edges;
        if (rule.n_regions[stratum] > 0) {
            widen(rule.n_coarse[stratum]);
            choose_nearest(rule.n_regions[stratum], rule.n_entries[stratum]);
        }
        return stratum;
    }

    // The nearest in order, and then the others in that of memory.
    const std::vector<int32_t>& chosen() const { return chosen_; }

    float best = 0, contrast = 0;

   private:
    using Floats = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    struct Reached {
        int64_t regions, entries;
    };

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
            const int64_t begin = regions_.first[c], end = regions_.first[c + 1];
            score_means<Isa>(regions_.fine, query_, begin, end, scores_.get() + n_scored_);
            for (int64_t i = begin * kGroup; i < end * kGroup; ++i, ++n_scored_) {
                const int32_t number = regions_.numbers[i];
                numbers_[n_scored_] = number;
                counts_[n_scored_] = number < 0 ? 0 : int32_t(regions_.counts[number]);
                n_regions_ += number >= 0;
            }
        }
    }

    // Lists the regions whose scores exceed a bound.
    void list_above(float bound) {
        nearest_.clear();
        for (int64_t i = 0; i < n_scored_; i += kLanes<Floats>) {
            const Ints above = load<Floats>(scores_.get() + i) > splat<Floats>(bound);
            if (!any(above)) continue;
            for (int j = 0; j < kLanes<Floats>; ++j)
                if (above[j]) nearest_.push_back({scores_[i + j], numbers_[i + j]});
        }
    }

    // Moves the n nearest to the front, in order.
    void sort_first(int64_t n) {
        n = std::min(n, int64_t(nearest_.size()));
        std::partial_sort(nearest_.begin(), nearest_.begin() + n, nearest_.end());
    }

    // Numbers of regions and entries with scores of at least this one.
    Reached reached(float least) const {
        Ints regions{}, entries{};
        for (int64_t i = 0; i < n_scored_; i += kLanes<Floats>) {
            const Ints is = load<Floats>(scores_.get() + i) >= splat<Floats>(least);
            regions = regions - is;
            entries = entries + (load<Ints>(counts_.get() + i) & is);
        }
        Reached sum{};
        for (int i = 0; i < kLanes<Ints>; ++i) {
            sum.regions += regions[i];
            sum.entries += entries[i];
        }
        return sum;
    }

    // The fewest nearest regions that are n and hold n_entries, by bisection of the score that they reach.
    void choose_nearest(int64_t n, int64_t n_entries) {
        const auto enough = [&](Reached some) { return some.regions >= n && some.entries >= n_entries; };
        constexpr float kLowest = -1e30f;  // less than all scores but those of rows that fill a group
        Reached all = reached(kLowest);    // with at least the low score
        for (; !enough(all) && n_coarse_ < regions_.n_coarse; all = reached(kLowest)) widen(2 * n_coarse_);
        float low = kLowest, high = best, width = 0.02f;
        Reached more{};  // with at least the high score, which is not enough
        while (enough(all) && all.regions > more.regions + 1) {
            const float middle = low == kLowest ? high - width : low + 0.5f * (high - low);
            if (low == kLowest) width *= 2;
            if (middle <= low || middle >= high) break;  // equal scores
            const Reached some = reached(middle);
            (enough(some) ? low : high) = middle;
            (enough(some) ? all : more) = some;
        }
        list_above(std::nextafter(low, 2 * kLowest));
        if (enough(all) && all.regions > more.regions + 1) {
            sort_first(all.regions);
            Reached some{};
            for (; !enough(some); ++some.regions) some.entries += regions_.counts[nearest_[some.regions].region];
            nearest_.resize(some.regions);
        }
        list_chosen();
    }

    // Lists the nearest of the chosen regions in order, and then the others in that of memory.
    void list_chosen() {
        const int64_t n_ordered = std::min(kOrdered, int64_t(nearest_.size()));
        const float bound = cut_scores<Isa>(scores_.get(), n_scored_, n_ordered);
        const auto end = std::partition(nearest_.begin(), nearest_.end(),
                                        [&](const ScoredRegion& one) { return one.score > bound; });
        std::sort(nearest_.begin(), end);
        for (size_t i = 0; i < nearest_.size(); ++i) {
            const int32_t region = nearest_[i].region;
            if (int64_t(i) < n_ordered)
                chosen_.push_back(region);
            else
                others_[region / 64] |= uint64_t(1) << (region % 64);
        }
        for (size_t i = 0; i < others_.size(); ++i)
            for (; others_[i]; others_[i] &= others_[i] - 1)
                chosen_.push_back(int32_t(64 * i) + count_trailing_zeros(others_[i]));
    }

    const ts_regions& regions_;
    ByteQuery<Isa> query_;
    std::vector<float> coarse_scores_;
    // Of the regions of the nearest coarse means: scores, living entries, and regions.
    std::unique_ptr<float[]> scores_;
    std::unique_ptr<int32_t[]> counts_, numbers_;
    std::vector<uint64_t> others_;  // a bit for each region
    std::vector<int32_t> chosen_{};
    std::vector<ScoredRegion> coarse_{}, nearest_{};
    int64_t n_scored_ = 0, n_regions_ = 0, n_coarse_ = 0;
};

// Calls use(blocks, count) with lists of the blocks of the codes in some regions; returns the number of codes.
template <class Use>
int64_t list_blocks(const ts_region_codes& codes, int64_t code_bytes, const std::vector<int32_t>& regions,
                    std::vector<Listed>& list, const Use& use) {
    constexpr size_t kListed = 1024;
    int64_t n = 0;
    size_t n_listed = 0;
    list.resize(kListed);
    for (const int32_t region : regions)
        for (int64_t i = codes.starts[region]; i < codes.starts[region + 1]; ++i) {
            const ts_region_range& range = codes.ranges[i];
            const ts_codes& segment = codes.segments.ranges[range.segment];
            const int64_t first = range.begin / kBlock, last = (int64_t(range.end) - 1) / kBlock;
            uint32_t within = ~uint32_t(0) << (range.begin % kBlock);
            for (int64_t b = first; b <= last; ++b, within = ~uint32_t(0)) {
                if (b == last) within &= ~uint32_t(0) >> (kBlock - 1 - (range.end - 1) % kBlock);
                const uint32_t mask = within & living(segment, b);
                const uint8_t* const block = segment.planes + b * code_bytes * kBlock;
                n += count_ones(mask);
                if (b == first && n_listed && list[n_listed - 1].block == block) {  // the end of another region
                    list[n_listed - 1].mask |= mask;
                } else if (mask) {
                    if (n_listed == kListed) {
                        use(list.data(), int64_t(n_listed));
                        n_listed = 0;
                    }
                    list[n_listed++] = {block, &segment, b, mask};
                }
            }
        }
    if (n_listed) use(list.data(), int64_t(n_listed));
    return n;
}

// One of some queries.
inline ts_queries query_at(const ts_scoring& scoring, const ts_queries& queries, int64_t q) {
    return {queries.values + q * scoring.width, queries.scales + q, queries.constants + q, 1};
}

// Calls use(scan type) for the comparison of single queries with codes: by tables, unless there are none.
template <class Isa, class Use>
void with_single_scan(const ts_scoring& scoring, const Use& use) {
    if (scoring.kind == TS_RING)
        use(static_cast<RingScan<Isa>*>(nullptr));
    else if (scoring.kind == TS_KEPT)
        use(static_cast<KeptScan<Isa>*>(nullptr));
    else
        use(static_cast<NibbleScan<Isa>*>(nullptr));
}

template <class Isa>
void choose_regions(int n_threads, const ts_regions& regions, const ts_region_rule& rule, const ts_rows& units,
                    const ts_region_choice& choice) {
    std::vector<std::vector<int32_t>> chosen(units.count);
    const double each = 0.01 * double(regions.fine.n_groups * kGroup * regions.fine.width) + 5000;
    parallel_items(n_threads, units.count, each, [&] {
        const auto chooser = std::make_shared<RegionChooser<Isa>>(regions);
        return [&, chooser](int64_t q) {
            choice.strata[q] = int32_t(chooser->choose(units.values + q * units.width, units.width, rule));
            chosen[q] = chooser->chosen();
            choice.best[q] = chooser->best;
            choice.contrasts[q] = chooser->contrast;
        };
    });
    choice.starts[0] = 0;
    for (int64_t q = 0; q < units.count; ++q) {
        choice.starts[q + 1] = choice.starts[q] + int64_t(chosen[q].size());
        if (choice.starts[q + 1] <= choice.capacity)
            std::copy(chosen[q].begin(), chosen[q].end(), choice.regions + choice.starts[q]);
    }
}

// Compares each query with the codes in its regions.
template <class Isa>
void visit(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_visits& visits,
           const ts_queries& queries, const ts_best& best) {
    int64_t n_codes = 0;
    for (int64_t s = 0; s < codes.segments.count; ++s) n_codes += codes.segments.ranges[s].count;
    with_single_scan<Isa>(scoring, [&](auto* type) {
        using Scan = std::remove_pointer_t<decltype(type)>;
        parallel_items(n_threads, queries.count, 0.05 * double(n_codes) + 5000, [&] {
            return [&, list = std::vector<Listed>()](int64_t q) mutable {
                const ts_queries query = query_at(scoring, queries, q);
                const Scan scan(1, scoring, query);
                typename Scan::Worker worker(scan);
                Top top(best.k);
                Best found(top);
                found.begin(1, false);
                const std::vector<int32_t> chosen(visits.regions + visits.starts[q],
                                                  visits.regions + visits.starts[q + 1]);
                list_blocks(codes, scoring.code_bytes, chosen, list,
                            [&](const Listed* some, int64_t n) { worker.scan(some, n, 0, 1, &found); });
                found.finish();
                top.write(best.values + q * best.k, best.rows + q * best.k);
            };
        });
    });
}

// The best codes of a query, at least `wanted` if there are so many.
template <class Isa>
class Shortlist {
   public:
    static constexpr bool kRounded = true;

    explicit Shortlist(int64_t wanted) { clear(wanted); }

    void clear(int64_t wanted) {
        wanted_ = wanted;
        n_ = 0;
        bound_ = -std::numeric_limits<float>::infinity();
        hold(64 * (2 * wanted / 64 + 1));
    }
    void begin(int, bool) {}
    void refresh() {}
    void finish() {}
    float bound() const { return bound_; }
    void offer(float value, const ts_codes& codes, int64_t position) {
        values_[n_] = value;
        places_[n_] = {&codes, position};
        if (++n_ == int64_t(values_.size())) cut();
    }
    void add(const Shortlist& other) {
        for (int64_t i = 0; i < other.n_; ++i)
            if (other.values_[i] > bound_) offer(other.values_[i], *other.places_[i].codes, other.places_[i].position);
    }

    // The best of these codes in no order; of equal ones those with lower ids.
    void take(std::vector<Candidate>& found) const {
        found.clear();
        for (int64_t i = 0; i < n_; ++i) found.push_back({values_[i], places_[i].codes, places_[i].position});
        if (n_ <= wanted_) return;
        std::nth_element(found.begin(), found.begin() + (wanted_ - 1), found.end());
        found.resize(size_t(wanted_));
    }

   private:
    struct Place {
        const ts_codes* codes;
        int64_t position;
    };

    void hold(int64_t n) {
        values_.resize(size_t(n));
        places_.resize(size_t(n));
    }

    void cut() {
        bound_ = cut_scores<Isa>(values_.data(), n_, wanted_);
        int64_t left = 0;
        for (int64_t i = 0; i < n_; ++i) {
            const bool stays = values_[i] > bound_;
            values_[left] = values_[i];
            places_[left] = places_[i];
            left += stays;
        }
        n_ = left;
        if (4 * n_ > 3 * int64_t(values_.size())) hold(2 * int64_t(values_.size()));
    }

    int64_t wanted_ = 0, n_ = 0;
    float bound_ = 0;
    std::vector<float> values_{};
    std::vector<Place> places_{};
};

// Searches of a thread: choice of regions, comparison of the codes there or of all, and exact comparison of the best.
template <class Isa, class Scan>
class RegionSearcher {
   public:
    RegionSearcher(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_regions& regions,
                   const ts_region_rule& rule, const ts_originals* originals, const ts_neighbors& out)
        : n_threads_(n_threads),
          scoring_(scoring),
          codes_(codes),
          regions_(regions),
          rule_(rule),
          originals_(originals),
          out_(out),
          chooser_(regions),
          exact_(originals),
          shortlist_(0) {}

    // Returns false if originals must be read first.
    bool search(int64_t q, const float* unit, int64_t n_features, const ts_queries& query) {
        const int64_t stratum = chooser_.choose(unit, n_features, rule_);
        out_.strata[q] = int32_t(stratum);
        const int64_t wanted = originals_ ? std::max(out_.k, rule_.n_candidates[stratum]) : out_.k;
        const Scan scan = scan_of(query);
        // Sums of rounded tables err by about two of 127 steps, so that the reserve holds the best by exact scores.
        const int64_t listed = kIsRounded ? wanted + wanted / 4 + 32 : wanted;
        shortlist_.clear(listed);
        out_.visited[q] = rule_.n_regions[stratum] ? visit_chosen(scan) : visit_all(scan, listed);
        shortlist_.take(found_);
        for (Candidate& one : found_) one.value = exact_score(scan, one);
        if (originals_) {
            keep_best(wanted, false);
            if (!exact_.rank(codes_.segments, q, found_, out_.k)) return false;
        } else {
            keep_best(out_.k, true);
        }
        write(q);
        return true;
    }

   private:
    static constexpr bool kIsRounded = std::is_same_v<Scan, RingScan<Isa>>;

    Scan scan_of(const ts_queries& query) const {
        if constexpr (kIsRounded)
            return Scan(1, scoring_, query, true);
        else
            return Scan(1, scoring_, query);
    }

    float exact_score(const Scan& scan, const Candidate& one) const {
        if constexpr (kIsRounded)
            return scan.exact_score(0, one.codes->planes + one.position / kBlock * scoring_.code_bytes * kBlock,
                                    int(one.position % kBlock));
        else
            return one.value;
    }

    void keep_best(int64_t n, bool sorted) {
        n = std::min(n, int64_t(found_.size()));
        if (sorted)
            std::partial_sort(found_.begin(), found_.begin() + n, found_.end());
        else if (n < int64_t(found_.size()))
            std::nth_element(found_.begin(), found_.begin() + n, found_.end());
        found_.resize(size_t(n));
    }

    int64_t visit_chosen(const Scan& scan) {
        typename Scan::Worker worker(scan);
        return list_blocks(codes_, scoring_.code_bytes, chooser_.chosen(), list_,
                           [&](const Listed* some, int64_t n) { worker.scan(some, n, 0, 1, &shortlist_); });
    }

    int64_t visit_all(const Scan& scan, int64_t wanted) {
        const Parts<Shortlist<Isa>> parts =
            scan_all(n_threads_, scoring_, codes_.segments, scan, std::vector<Shortlist<Isa>>{Shortlist<Isa>(wanted)});
        for (const auto& part : parts) shortlist_.add(part[0]);
        int64_t n = 0;
        for (int64_t slot = 0; slot < regions_.fine.n_groups * kGroup; ++slot)
            if (regions_.numbers[slot] >= 0) n += regions_.counts[regions_.numbers[slot]];
        return n;
    }

    void write(int64_t q) const {
        for (int64_t i = 0; i < out_.k; ++i) {
            const int64_t at = q * out_.k + i;
            const bool is_found = i < int64_t(found_.size());
            out_.rows[at] = is_found ? row_of(*found_[i].codes, found_[i].position) : -1;
            out_.ids[at] = is_found ? id_of(*found_[i].codes, found_[i].position) : -1;
            if (!is_found) continue;
            out_.values[at] = found_[i].value;
            if (!originals_) continue;
            out_.inner[at] = exact_.results()[i].inner;
            out_.correlations[at] = exact_.results()[i].correlation;
        }
    }

    const int n_threads_;  // of a comparison with all codes
    const ts_scoring& scoring_;
    const ts_region_codes& codes_;
    const ts_regions& regions_;
    const ts_region_rule& rule_;
    const ts_originals* const originals_;
    const ts_neighbors& out_;
    RegionChooser<Isa> chooser_;
    ExactComparison<Isa> exact_;
    Shortlist<Isa> shortlist_;
    std::vector<Candidate> found_{};
    std::vector<Listed> list_{};
};

// Returns false if originals must be read first.
template <class Isa>
bool search_regions(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_regions& regions,
                    const ts_region_rule& rule, const ts_rows& units, const ts_queries& queries,
                    const ts_originals* originals, const ts_neighbors& out) {
    std::atomic<bool> is_complete{true};
    with_single_scan<Isa>(scoring, [&](auto* type) {
        using Searcher = RegionSearcher<Isa, std::remove_pointer_t<decltype(type)>>;
        const int spare = int(std::max<int64_t>(1, n_threads / std::max<int64_t>(1, queries.count)));
        parallel_items(n_threads, queries.count, 50000, [&] {
            const auto searcher = std::make_shared<Searcher>(spare, scoring, codes, regions, rule, originals, out);
            return [&, searcher](int64_t q) {
                const float* const unit = units.values + q * units.width;
                if (!searcher->search(q, unit, units.width, query_at(scoring, queries, q))) is_complete = false;
            };
        });
    });
    return is_complete;
}

template <class Isa>
bool search_plan(int n_threads, const ts_region_plan& plan, const ts_rows& signals, const ts_neighbors& found) {
    const int64_t n = signals.count, n_coded = plan.preparation->n_coded;
    std::vector<double> norms(n);
    std::vector<float> units(n * signals.width), numbers(2 * n);
    std::vector<int16_t> values(n * n_coded);
    prepare_queries<Isa>(n_threads, *plan.preparation, signals,
                         {norms.data(), units.data(), values.data(), numbers.data(), numbers.data() + n});
    ts_originals originals{};
    if (plan.originals) {
        originals = *plan.originals;
        originals.queries = signals;
    }
    const bool is_complete = search_regions<Isa>(
        n_threads, *plan.scoring, *plan.codes, *plan.regions, *plan.rule, {units.data(), n, signals.width},
        {values.data(), numbers.data(), numbers.data() + n, n}, plan.originals ? &originals : nullptr, found);
    for (int64_t q = 0; q < n; ++q)
        if (!(norms[q] >= 1e-18 && norms[q] <= 1e18)) found.rows[(q + 1) * found.k - 1] = -1;
    return is_complete;
}

}  // namespace
}  // namespace topsign
