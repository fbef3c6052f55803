// Scores of one or a few queries: rounded values come from a table per query, and codes whose rounded sum reaches the
// bound are summed exactly.
#pragma once

#include "blocks.h"
#include "code_groups.h"
#include "exact_scores.h"

namespace topsign {
namespace {

// The table of a query has one byte per table row: the rounded value of the location with the sign of the row.
template <class Isa, class Row, class Collector>
void scan_rows(const ts_codes& codes, const ts_rows& queries, const Rounded& rounded, const std::vector<int8_t>& table,
               int64_t begin, int64_t end, Collector* best) {
    const Layout layout(codes.layout);
    const int64_t n_bits = layout.n_bits, stride = table_rows(layout);
    RowReader<Isa, Row> reader(layout, codes.data, codes.count);
    std::vector<Row> rows(n_bits + reader.kSpare);
    ExactScores<Isa, Collector> exact(codes, queries, best);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        reader.read(i, rows.data());
        for (int64_t q = 0; q < queries.count; ++q) {
            const int8_t* values = table.data() + q * stride;
            int32_t sums[4] = {0, 0, 0, 0};
            const Row* row = rows.data();
            int64_t j = 0;
            for (; j + 8 <= n_bits; j += 8)
                for (int s = 0; s < 8; ++s) sums[s & 3] += values[row[j + s]];
            for (; j < n_bits; ++j) sums[0] += values[row[j]];
            const int32_t sum = sums[0] + sums[1] + sums[2] + sums[3];
            if (may_enter(rounded, q, sum, weight_of(codes, i), best[q])) exact.offer(i, q);
        }
    }
}

inline std::vector<int8_t> signed_table(const Layout& layout, const Rounded& rounded, int64_t n_queries) {
    const int64_t stride = table_rows(layout);
    std::vector<int8_t> table(n_queries * stride);
    for (int64_t q = 0; q < n_queries; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int8_t value = rounded.values[q * layout.n_pool + location];
            table[q * stride + table_row(layout, location, true)] = value;
            table[q * stride + table_row(layout, location, false)] = int8_t(-value);
        }
    return table;
}

// Reads the fast layout directly: sixteen locations of each of kBytes / 16 blocks are looked up in the 128 rounded
// values of the block, and the sign of the code is applied. Values are stored negated, because a set sign bit, which
// makes the byte negative, means a positive projection.
template <class Isa>
struct BlockSummer {
    static constexpr int kParts = Isa::kBytes / 16;
    static constexpr int64_t kValueBytes = kParts * kBlockRows;  // values of kParts blocks
    using V = Vec<uint8_t, Isa::kBytes>;
    using S = Vec<int8_t, Isa::kBytes>;
    using Wide = Vec<int16_t, Isa::kBytes / 2>;

    static std::vector<int8_t> table(const Layout& layout, const Rounded& rounded, int64_t n_queries) {
        const int64_t stride = table_bytes(layout);
        std::vector<int8_t> table(n_queries * stride);
        for (int64_t q = 0; q < n_queries; ++q)
            for (int64_t location = 0; location < layout.n_pool; ++location) {
                const int64_t block = location / kBlockRows, offset = location % kBlockRows;
                table[q * stride + block / kParts * kValueBytes + (offset & 7) * Isa::kBytes + block % kParts * 16 +
                      (offset >> 3)] = int8_t(-rounded.values[q * layout.n_pool + location]);
            }
        return table;
    }

    static int64_t table_bytes(const Layout& layout) { return ceil_div(layout.n_blocks(), kParts) * kValueBytes; }

    template <int N>
    static TOPSIGN_INLINE void add(const uint8_t* const (&at)[kParts], const uint8_t* counts,
                                   const int8_t* const* table, int64_t offset, Wide* sums) {
        const auto chooser = Isa::choose_values(Isa::load_parts(at), Isa::first_of_parts(counts));
        for (int q = 0; q < N; ++q) sums[q] = Isa::add_pairs(sums[q], chooser(table[q] + offset));
    }

    // Groups with a block of more than sixteen locations, and the last group; out of line to save registers.
    template <int N>
    static TOPSIGN_OUTLINE const uint8_t* add_some(const uint8_t* bytes, const uint8_t* counts, int64_t n_blocks,
                                                   const int8_t* const* table, int64_t offset, int32_t* totals) {
        return for_each_sixteen<kParts>(bytes, counts, n_blocks,
                                        [&](const uint8_t* const(&at)[kParts], const uint8_t* step, int64_t block) {
                                            Wide sums[N] = {};
                                            add<N>(at, step, table, offset + block * kBlockRows, sums);
                                            for (int q = 0; q < N; ++q) totals[q] += Isa::sum_lanes(sums[q]);
                                        });
    }

    template <int N>
    static TOPSIGN_INLINE void sum(const uint8_t* code, int64_t n_blocks, const int8_t* const* table, int32_t* totals) {
        const uint8_t* bytes = code + n_blocks;
        for (int q = 0; q < N; ++q) totals[q] = 0;
        int64_t block = 0;
        while (block + 8 <= n_blocks) {
            Wide sums[N] = {};  // 16 bits hold 128 steps
            for (const int64_t end = std::min(n_blocks / 8 * 8, block + 128); block < end; block += 8) {
                const uint64_t counts = load<uint64_t>(code + block);
                if (any_above_16(counts)) {
                    bytes = add_some<N>(bytes, code + block, 8, table, block * kBlockRows, totals);
                    continue;
                }
                for (int64_t b = block; b < block + 8; b += kParts) {
                    const uint8_t* at[kParts];
                    for (int part = 0; part < kParts; ++part) {
                        at[part] = bytes;
                        bytes += code[b + part];
                    }
                    add<N>(at, code + b, table, b * kBlockRows, sums);
                }
            }
            for (int q = 0; q < N; ++q) totals[q] += Isa::sum_lanes(sums[q]);
        }
        if (block < n_blocks) add_some<N>(bytes, code + block, n_blocks - block, table, block * kBlockRows, totals);
    }
};

template <class Isa, class Collector>
void scan_value_blocks(const ts_codes& codes, const ts_rows& queries, const Rounded& rounded,
                       const std::vector<int8_t>& table, int64_t begin, int64_t end, Collector* best) {
    using Summer = BlockSummer<Isa>;
    const Layout layout(codes.layout);
    const int64_t n_blocks = layout.n_blocks(), stride = Summer::table_bytes(layout);
    CodeReader reader(layout, codes.data, codes.count);
    ExactScores<Isa, Collector> exact(codes, queries, best);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = reader(i);
        if (sum_bytes(code, n_blocks) > layout.n_bits) {  // invalid: counts exceed the code
            for (int64_t q = 0; q < queries.count; ++q) exact.offer(i, q);
            continue;
        }
        for (int64_t q = 0; q < queries.count;) {
            const int8_t* tables[2] = {table.data() + q * stride, table.data() + (q + 1) * stride};
            int32_t sums[2];
            const int n = queries.count - q >= 2 ? 2 : 1;
            n == 2 ? Summer::template sum<2>(code, n_blocks, tables, sums)
                   : Summer::template sum<1>(code, n_blocks, tables, sums);
            for (int s = 0; s < n; ++s, ++q)
                if (may_enter(rounded, q, sums[s], weight_of(codes, i), best[q])) exact.offer(i, q);
        }
    }
}

template <class Isa, class Collector>
Parts<Collector> search_few_scores(int n_threads, const CodeRanges& ranges, const ts_rows& queries,
                                   const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    const Rounded rounded = round_queries<Isa>(n_threads, queries, layout.n_bits);
    if constexpr (Isa::kPermutesBlocks) {
        if (CodeGroups<Isa>::serves(layout))
            return search_groups<Isa>(n_threads, ranges, scan_cost(layout, 20 + 8 * queries.count),
                                      ValueGroups<Isa>(layout, queries, rounded), empty);
    } else if constexpr (Isa::kLooksUp) {
        if (layout.fast()) {
            const std::vector<int8_t> table = BlockSummer<Isa>::table(layout, rounded, queries.count);
            return scan_parts(n_threads, ranges, scan_cost(layout, 50 * queries.count), empty,
                              [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                                  scan_value_blocks<Isa>(codes, queries, rounded, table, begin, end, best);
                              });
        }
    }
    const std::vector<int8_t> table = signed_table(layout, rounded, queries.count);
    return scan_parts(n_threads, ranges, scan_cost(layout, 50 * queries.count), empty,
                      [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                          if (narrow_rows(layout, 0))
                              scan_rows<Isa, uint16_t>(codes, queries, rounded, table, begin, end, best);
                          else
                              scan_rows<Isa, uint32_t>(codes, queries, rounded, table, begin, end, best);
                      });
}

}  // namespace
}  // namespace topsign
