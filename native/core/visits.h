// Visits: each query searches the entries of some regions, which are gathered from all segments.
#pragma once

#include <functional>
#include <vector>

#include "collect.h"

namespace topsign {

inline int64_t count_visited(const ts_visits& visits, int64_t region) {
    int64_t count = 0;
    for (int64_t s = 0; s < visits.n_segments; ++s)
        count += visits.segments[s].starts[region + 1] - visits.segments[s].starts[region];
    return count;
}

// Calls visit(segment, position) for each entry of a region that takes part, by ascending position in each segment.
template <class Visit>
void for_each_entry(const ts_visits& visits, int64_t region, const Visit& visit) {
    for (int64_t s = 0; s < visits.n_segments; ++s) {
        const ts_region_segment& segment = visits.segments[s];
        for (int64_t i = segment.starts[region]; i < segment.starts[region + 1]; ++i)
            if (is_alive(segment.alive, segment.positions[i])) visit(segment, int64_t(segment.positions[i]));
    }
}

inline int64_t row_of(const ts_region_segment& segment, int64_t position) { return segment.first_row + position; }
inline int64_t id_of(const ts_region_segment& segment, int64_t position) {
    return segment.ids ? segment.ids[position] : row_of(segment, position);
}

// The queries that visit each region.
class VisitedRegions {
   public:
    explicit VisitedRegions(const ts_visits& visits) : starts_(visits.n_regions + 1) {
        const int64_t total = visits.starts[visits.n_queries];
        for (int64_t i = 0; i < total; ++i) ++starts_[visits.regions[i] + 1];
        for (int64_t r = 0; r < visits.n_regions; ++r) {
            if (starts_[r + 1]) regions_.push_back(int32_t(r));
            starts_[r + 1] += starts_[r];
        }
        queries_.resize(total);
        std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
        for (int64_t q = 0; q < visits.n_queries; ++q)
            for (int64_t i = visits.starts[q]; i < visits.starts[q + 1]; ++i)
                queries_[next[visits.regions[i]]++] = int32_t(q);
    }

    const std::vector<int32_t>& regions() const { return regions_; }
    const int32_t* queries(int64_t region) const { return queries_.data() + starts_[region]; }
    int64_t n_queries(int64_t region) const { return starts_[region + 1] - starts_[region]; }
    bool same_queries(int64_t a, int64_t b) const {
        return n_queries(a) == n_queries(b) && std::equal(queries(a), queries(a) + n_queries(a), queries(b));
    }

   private:
    std::vector<int64_t> starts_;
    std::vector<int32_t> regions_{}, queries_{};
};

// Ranks codes for one query: those of a range, k of them, keys and rows as ts_best has them.
template <class Key>
using RankOne = std::function<void(int64_t query, const ts_code_ranges& codes, const ts_best& best)>;

// For kernels that prepare a table per query: threads take queries, and copy the codes that one visits, a bounded
// number at a time. `sign` is 1 if less is better, and -1 if more is.
template <class Key>
void visit_codes(int n_threads, const ts_layout& layout, const ts_visits& visits, const ts_best& best, int sign,
                 const RankOne<Key>& rank) {
    constexpr int64_t kMost = 65536;
    int64_t total = 0;
    for (int64_t i = 0; i < visits.starts[visits.n_queries]; ++i) total += count_visited(visits, visits.regions[i]);
    const int64_t code_bytes = visits.code_bytes;
    const auto search = [&](int64_t query) {
        std::vector<uint8_t> codes;
        std::vector<float> weights;
        std::vector<int64_t> ids, rows, found(best.k);
        std::vector<Key> keys(best.k);
        std::vector<Kept<Key>> kept;
        const auto flush = [&] {
            if (rows.empty()) return;
            const ts_codes range{layout,
                                 codes.data(),
                                 int64_t(rows.size()),
                                 nullptr,
                                 weights.empty() ? nullptr : weights.data(),
                                 nullptr,
                                 0};
            // Ties are settled by row, so that codes stand by ascending id.
            rank(query, {&range, 1}, {best.k, found.data(), keys.data()});
            for (int64_t i = 0; i < best.k && found[i] >= 0; ++i)
                kept.push_back({Key(sign * keys[i]), ids[found[i]], rows[found[i]]});
            codes.clear(), weights.clear(), ids.clear(), rows.clear();
        };
        struct Entry {
            int64_t id, position;
            const ts_region_segment* segment;
        };
        std::vector<Entry> entries;
        const auto copy = [&] {
            std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
            codes.resize(entries.size() * code_bytes);
            for (size_t i = 0; i < entries.size(); ++i) {
                const Entry& one = entries[i];
                std::memcpy(&codes[i * code_bytes], one.segment->data + one.position * code_bytes, code_bytes);
                if (one.segment->weights) weights.push_back(one.segment->weights[one.position]);
                ids.push_back(one.id);
                rows.push_back(row_of(*one.segment, one.position));
            }
            entries.clear();
            flush();
        };
        for (int64_t i = visits.starts[query]; i < visits.starts[query + 1]; ++i) {
            for_each_entry(visits, visits.regions[i], [&](const ts_region_segment& segment, int64_t position) {
                entries.push_back({id_of(segment, position), position, &segment});
            });
            if (int64_t(entries.size()) >= kMost) copy();
        }
        copy();
        std::sort(kept.begin(), kept.end());
        for (int64_t i = 0; i < best.k; ++i) {
            const bool is_found = i < int64_t(kept.size());
            if (is_found) static_cast<Key*>(best.values)[query * best.k + i] = Key(sign * kept[i].key);
            best.rows[query * best.k + i] = is_found ? kept[i].row : -1;
        }
    };
    const double each = 20 * double(total) / double(std::max<int64_t>(1, visits.n_queries));
    parallel_for(n_threads, visits.n_queries, each, [&](int64_t begin, int64_t end) {
        for (int64_t query = begin; query < end; ++query) search(query);
    });
}

}  // namespace topsign
