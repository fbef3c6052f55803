// Visits of trellis codes: a region is decoded once for all queries that visit it.
#pragma once

#include "../core/visits.h"
#include "trellis_scan.h"

namespace topsign {
namespace {

// Asks for what the entries of regions are found by: where they begin in `far`, which is read after `near`, and their
// positions in `near`. Each is a cache line for every segment, which the processor does not foresee.
inline void prefetch_entries(const ts_visits& visits, const int32_t* far, const int32_t* near) {
    for (int64_t s = 0; s < visits.n_segments; ++s) {
        const ts_region_segment& segment = visits.segments[s];
        if (far) prefetch_line(segment.starts + *far);
        if (near) prefetch_line(segment.positions + segment.starts[*near]);
    }
}

// Codes of one cell in some regions, of all segments.
struct CellCodes {
    std::vector<const uint8_t*> codes;
    std::vector<const int64_t*> ids;  // empty if ids are rows
    std::vector<int64_t> rows;

    void add(const uint8_t* code, const int64_t* id, int64_t row) {
        codes.push_back(code);
        if (id) ids.push_back(id);
        rows.push_back(row);
    }
    void clear() {
        codes.clear();
        ids.clear();
        rows.clear();
    }
    Range range() const {
        Range all{int64_t(codes.size())};
        all.rows = rows.data();
        all.id_places = ids.empty() ? nullptr : ids.data();
        return all;
    }
};

// Codes at pointers, as RangeCodes.
struct PointedCodes {
    const uint8_t* const* codes;
    const float* norm_fractions;
    int64_t first, n;

    int64_t position(int64_t i) const { return first + i; }
    const uint8_t* operator()(int64_t i) const { return codes[i]; }
    const float* fractions() const { return norm_fractions; }
    bool takes_part(int64_t) const { return true; }

    void prefetch() const {}  // as they were gathered
};

// State of a thread.
template <class Isa>
class TrellisVisitor {
   public:
    TrellisVisitor(const ts_trellis_cells& asked, const ts_visits& visits, TrellisCells& cells,
                   const std::vector<Best<float>>& tops)
        : asked_(asked), visits_(visits), cells_(cells), tops_(tops), codes_(cells.size()) {}

    void gather(int64_t region) {
        for_each_entry(visits_, region, [&](const ts_region_segment& segment, int64_t position) {
            const uint8_t* const code = segment.data + position * visits_.code_bytes;
            prefetch_line(code);
            prefetch_line(code + visits_.code_bytes - 1);
            const int cell = cells_.size() == 1 ? 0 : code[asked_.cell_byte] & asked_.cell_mask;
            codes_[cell].add(code, segment.ids ? segment.ids + position : nullptr, row_of(segment, position));
            ++n_gathered_;
        });
    }

    int64_t n_gathered() const { return n_gathered_; }

    // Offers what was gathered to these queries.
    void scan(const int32_t* queries, int64_t n_queries) {
        collectors_.clear();
        for (int64_t i = 0; i < n_queries; ++i) collectors_.push_back(tops_[queries[i]]);
        for (auto& collector : collectors_) collector.refresh();
        for (int64_t cell = 0; cell < cells_.size(); ++cell) {
            CellCodes& codes = codes_[cell];
            const int64_t n = int64_t(codes.codes.size());
            if (n == 0) continue;
            const Range range = codes.range();
            for (auto& collector : collectors_) collector.follow(range);
            const TrellisCell& own = cells_[cell];
            queries_.take(own.queries, queries, n_queries);
            scan_.scan_codes(
                own.plan, queries_, 0, n,
                [&](int64_t first, int64_t count) {
                    return PointedCodes{codes.codes.data() + first, asked_.fractions, first, count};
                },
                collectors_.data());
            codes.clear();
        }
        for (auto& collector : collectors_) collector.finish();
        n_gathered_ = 0;
    }

   private:
    const ts_trellis_cells& asked_;
    const ts_visits& visits_;
    TrellisCells& cells_;
    const std::vector<Best<float>>& tops_;
    std::vector<CellCodes> codes_;  // by cell
    std::vector<Best<float>> collectors_{};
    TrellisQueries queries_{};
    TrellisScan<Isa> scan_{};
    int64_t n_gathered_ = 0;
};

template <class Isa>
void visit_trellis(int n_threads, const ts_trellis_cells& asked, const ts_visits& visits, const ts_best& best) {
    constexpr int64_t kTogether = 16 * TrellisBlock<Isa>::kEntries;  // entries of regions with the same queries
    TrellisCells cells(asked.cells, asked.n_cells);
    const VisitedRegions visited(visits);
    const std::vector<int32_t>& regions = visited.regions();
    double nanoseconds = 0;
    for (const int32_t region : regions)
        nanoseconds += double(count_visited(visits, region)) *
                       decode_cost(asked.cells[0].trellis,
                                   visited.n_queries(region) * TrellisQueries::digits_of(asked.cells[0].queries));
    Tops<float> tops(visits.n_queries, best.k);
    std::vector<Best<float>> collectors = tops.collectors();
    const int n_slots = worthwhile_threads(n_threads, nanoseconds);
    for (auto& collector : collectors) collector.begin(n_slots, false);
    Pieces pieces(int64_t(regions.size()), n_slots, 1);
    run_slots(n_slots, [&](int) {
        TrellisVisitor<Isa> visitor(asked, visits, cells, collectors);
        for (int64_t begin, end; pieces.take(begin, end);)
            for (int64_t i = begin; i < end; ++i) {
                prefetch_entries(visits, i + 8 < end ? &regions[i + 8] : nullptr,
                                 i + 4 < end ? &regions[i + 4] : nullptr);
                visitor.gather(regions[i]);
                const bool is_last = i + 1 == end || visitor.n_gathered() >= kTogether ||
                                     !visited.same_queries(regions[i], regions[i + 1]);
                if (is_last) visitor.scan(visited.queries(regions[i]), visited.n_queries(regions[i]));
            }
    });
    float* const values = static_cast<float*>(best.values);
    tops.write(values, best.rows);
    for (int64_t i = 0; i < visits.n_queries * best.k; ++i)
        if (best.rows[i] >= 0) values[i] = 0.f - values[i];
}

}  // namespace
}  // namespace topsign
