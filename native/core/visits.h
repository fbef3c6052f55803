// Visits: each query searches the entries of some regions, which are gathered from all segments.
#pragma once

#include <vector>

#include "collect.h"
#include "lines.h"

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
        const int64_t begin = visits.starts[0], end = visits.starts[visits.n_queries];
        for (int64_t i = begin; i < end; ++i) ++starts_[visits.regions[i] + 1];
        for (int64_t r = 0; r < visits.n_regions; ++r) {
            if (starts_[r + 1]) regions_.push_back(int32_t(r));
            starts_[r + 1] += starts_[r];
        }
        queries_.resize(end - begin);
        std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
        for (int64_t q = 0; q < visits.n_queries; ++q)
            for (int64_t i = visits.starts[q]; i < visits.starts[q + 1]; ++i)
                queries_[next[visits.regions[i]]++] = int32_t(q);
    }

    const std::vector<int32_t>& regions() const { return regions_; }
    QueryList queries(int64_t region) const {
        return {queries_.data() + starts_[region], starts_[region + 1] - starts_[region]};
    }
    bool same_queries(int64_t a, int64_t b) const {
        const QueryList first = queries(a), second = queries(b);
        return first.count == second.count && std::equal(first.numbers, first.numbers + first.count, second.numbers);
    }

   private:
    std::vector<int64_t> starts_;
    std::vector<int32_t> regions_{}, queries_{};
};

// Codes of some regions, of all segments.
struct GatheredCodes {
    std::vector<const uint8_t*> codes;
    std::vector<const int64_t*> ids;  // empty if ids are rows
    std::vector<int64_t> rows;

    int64_t count() const { return int64_t(codes.size()); }
    void add(const ts_region_segment& segment, int64_t position, int64_t code_bytes) {
        codes.push_back(segment.data + position * code_bytes);
        if (segment.ids) ids.push_back(segment.ids + position);
        rows.push_back(row_of(segment, position));
    }
    void clear() {
        codes.clear();
        ids.clear();
        rows.clear();
    }
    // `count` of the codes, from `first` on.
    Range range(int64_t first, int64_t count) const {
        Range some{count};
        some.rows = rows.data() + first;
        some.id_places = ids.empty() ? nullptr : ids.data() + first;
        return some;
    }
};

// Prefetches the data by which the entries of regions are found: starts of region `far`, which is read after `near`,
// and positions of `near`. Each is a cache line per segment, which the hardware does not prefetch.
inline void prefetch_entries(const ts_visits& visits, const int32_t* far, const int32_t* near) {
    for (int64_t s = 0; s < visits.n_segments; ++s) {
        const ts_region_segment& segment = visits.segments[s];
        if (far) prefetch_line(segment.starts + *far);
        if (near) prefetch_line(segment.positions + segment.starts[*near]);
    }
}

// Visits all regions; cost(n_queries) is the approximate number of nanoseconds per entry. Threads take regions,
// and each makes a visitor with start(collectors by query). Its gather(region) is called for each region, and
// compare(queries) when it is full or the next region has other queries.
template <class Key, class Cost, class Start>
void visit_regions(int n_threads, const ts_visits& visits, Tops<Key>& tops, const Cost& cost, const Start& start) {
    const VisitedRegions visited(visits);
    const std::vector<int32_t>& regions = visited.regions();
    double nanoseconds = 0;
    for (const int32_t region : regions)
        nanoseconds += double(count_visited(visits, region)) * cost(visited.queries(region).count);
    const int n_slots = worthwhile_threads(n_threads, nanoseconds);
    std::vector<Best<Key>> collectors = tops.collectors();
    for (auto& collector : collectors) collector.begin(n_slots, false);
    Pieces pieces(int64_t(regions.size()), n_slots, 1);
    run_slots(n_slots, [&](int) {
        auto visitor = start(collectors);
        for (int64_t begin, end; pieces.take(begin, end);)
            for (int64_t i = begin; i < end; ++i) {
                prefetch_entries(visits, i + 8 < end ? &regions[i + 8] : nullptr,
                                 i + 4 < end ? &regions[i + 4] : nullptr);
                visitor.gather(regions[i]);
                const bool is_last =
                    i + 1 == end || visitor.is_full() || !visited.same_queries(regions[i], regions[i + 1]);
                if (is_last) visitor.compare(visited.queries(regions[i]));
            }
    });
}

}  // namespace topsign
