// Mismatches of one or a few queries on any instruction set, with a byte table per query.
#pragma once

#include "../core/collect.h"
#include "rows.h"
#include "sums.h"

namespace topsign {
namespace {

// Scans code by code and query by query; a table entry is 1 if the signs differ.
template <class Isa, class Row, class Collector>
void scan_each(const ts_codes& codes, const std::vector<uint8_t>& table, int64_t n_queries, int64_t begin, int64_t end,
               Collector* best) {
    const Layout layout(codes.layout);
    const int64_t n_bits = layout.n_bits, stride = table_rows(layout);
    RowReader<Isa, Row> reader(layout, codes.data, codes.count);
    std::vector<Row> rows(n_bits + reader.kSpare);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        reader.read(i, rows.data());
        for (int64_t q = 0; q < n_queries; ++q) {
            const uint8_t* differs = table.data() + q * stride;
            int32_t sums[4] = {0, 0, 0, 0};
            int64_t j = 0;
            for (; j + 4 <= n_bits; j += 4)
                for (int s = 0; s < 4; ++s) sums[s] += differs[rows[j + s]];
            for (; j < n_bits; ++j) sums[0] += differs[rows[j]];
            const int32_t count = sums[0] + sums[1] + sums[2] + sums[3];
            if (count < best[q].bound()) best[q].offer(count, i);
        }
    }
}

inline std::vector<uint8_t> byte_table(const Layout& layout, const ts_signs& queries) {
    const int64_t stride = table_rows(layout), bytes = ceil_div(layout.n_pool, 8);
    std::vector<uint8_t> table(queries.count * stride);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location)
            for (int positive = 0; positive < 2; ++positive)
                table[q * stride + table_row(layout, location, positive)] =
                    get_bit(queries.bits + q * bytes, location) != positive;
    return table;
}

template <class Isa, class Collector>
Parts<Collector> search_each(int n_threads, const CodeRanges& ranges, const ts_signs& queries,
                             const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    const std::vector<uint8_t> table = byte_table(layout, queries);
    return scan_parts(n_threads, ranges, scan_cost(layout, 80 * queries.count), empty,
                      [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                          if (narrow_rows(layout, 0))
                              scan_each<Isa, uint16_t>(codes, table, queries.count, begin, end, best);
                          else
                              scan_each<Isa, uint32_t>(codes, table, queries.count, begin, end, best);
                      });
}

}  // namespace
}  // namespace topsign
