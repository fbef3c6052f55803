// Visits of trellis codes: a region is decoded once for all queries that visit it.
#pragma once

#include "../core/visits.h"
#include "trellis_scan.h"

namespace topsign {
namespace {

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
            codes_[cell].add(segment, position, visits_.code_bytes);
            ++n_gathered_;
        });
    }

    bool is_full() const { return n_gathered_ >= 16 * TrellisBlock<Isa>::kEntries; }

    // Compares the gathered codes with these queries.
    void compare(const QueryList& queries) {
        collectors_.clear();
        for (int64_t i = 0; i < queries.count; ++i) collectors_.push_back(tops_[queries[i]]);
        for (auto& collector : collectors_) collector.refresh();
        for (int64_t cell = 0; cell < cells_.size(); ++cell) {
            GatheredCodes& codes = codes_[cell];
            const int64_t n = codes.count();
            if (n == 0) continue;
            const Range range = codes.range(0, n);
            for (auto& collector : collectors_) collector.follow(range);
            const TrellisCell& own = cells_[cell];
            queries_.take(own.queries, queries.numbers, queries.count);
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
    std::vector<GatheredCodes> codes_;  // by cell
    std::vector<Best<float>> collectors_{};
    TrellisQueries queries_{};
    TrellisScan<Isa> scan_{};
    int64_t n_gathered_ = 0;
};

template <class Isa>
void visit_trellis(int n_threads, const ts_trellis_cells& asked, const ts_visits& visits, const ts_best& best) {
    TrellisCells cells(asked.cells, asked.n_cells);
    Tops<float> tops(visits.n_queries, best.k);
    visit_regions(
        n_threads, visits, tops,
        [&](int64_t n_queries) {
            return decode_cost(asked.cells[0].trellis, n_queries * TrellisQueries::digits_of(asked.cells[0].queries));
        },
        [&](const std::vector<Best<float>>& collectors) {
            return TrellisVisitor<Isa>(asked, visits, cells, collectors);
        });
    float* const values = static_cast<float*>(best.values);
    tops.write(values, best.rows);
    for (int64_t i = 0; i < visits.n_queries * best.k; ++i)
        if (best.rows[i] >= 0) values[i] = 0.f - values[i];
}

}  // namespace
}  // namespace topsign
