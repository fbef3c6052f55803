// Scores of one or a few queries: rounded values come from a table per query, and codes whose rounded sum reaches the
// bound are summed exactly.
#pragma once

#include "blocks.h"
#include "code_groups.h"
#include "exact_scores.h"

namespace topsign {
namespace {

// Tables with a byte per signed location: its rounded value with the sign.
template <class Isa>
class RoundedTables {
   public:
    static constexpr int64_t kGroup = 1;

    RoundedTables(int n_threads, const Layout& layout, const ts_rows& queries)
        : layout_(layout),
          queries_(queries),
          rounded_(round_queries<Isa>(n_threads, queries, layout.n_bits)),
          stride_(table_rows(layout)),
          table_(queries.count * stride_) {
        parallel_for(n_threads, queries.count, 2 * double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                for (int64_t location = 0; location < layout.n_pool; ++location) {
                    const int8_t value = rounded_.values[q * layout.n_pool + location];
                    table_[q * stride_ + table_row(layout, location, true)] = value;
                    table_[q * stride_ + table_row(layout, location, false)] = int8_t(-value);
                }
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 50 * n_queries); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            narrow_rows(layout_, 0) ? scan<uint16_t>(codes, begin, end, queries, best)
                                    : scan<uint32_t>(codes, begin, end, queries, best);
        };
    }

   private:
    template <class Row, class Collector>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, Collector* best) const {
        const int64_t n_bits = layout_.n_bits;
        RowReader<Isa, Row> reader(layout_, codes.data, codes.count);
        std::vector<Row> rows(n_bits + reader.kSpare);
        ExactScores<Isa, Collector> exact(codes, queries_, queries, best);
        for (int64_t i = begin; i < end; ++i) {
            if (!is_alive(codes.alive, i)) continue;
            reader.read(i, rows.data());
            for (int64_t q = 0; q < queries.count; ++q) {
                const int8_t* values = table_.data() + queries[q] * stride_;
                int32_t sums[4] = {0, 0, 0, 0};
                const Row* row = rows.data();
                int64_t j = 0;
                for (; j + 8 <= n_bits; j += 8)
                    for (int s = 0; s < 8; ++s) sums[s & 3] += values[row[j + s]];
                for (; j < n_bits; ++j) sums[0] += values[row[j]];
                const int32_t sum = sums[0] + sums[1] + sums[2] + sums[3];
                if (may_enter(rounded_, queries[q], sum, weight_of(codes, i), best[q])) exact.offer(i, q);
            }
        }
    }

    const Layout layout_;
    const ts_rows queries_;
    const Rounded rounded_;
    const int64_t stride_;
    std::vector<int8_t> table_;
};

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

    // Writes the table of a query.
    static void fill(const Layout& layout, const int8_t* rounded, int8_t* table) {
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int64_t block = location / kBlockRows, offset = location % kBlockRows;
            table[block / kParts * kValueBytes + (offset & 7) * Isa::kBytes + block % kParts * 16 + (offset >> 3)] =
                int8_t(-rounded[location]);
        }
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

// Tables of a BlockSummer.
template <class Isa>
class RoundedBlocks {
   public:
    static constexpr int64_t kGroup = 1;

    RoundedBlocks(int n_threads, const Layout& layout, const ts_rows& queries)
        : layout_(layout),
          queries_(queries),
          rounded_(round_queries<Isa>(n_threads, queries, layout.n_bits)),
          stride_(Summer::table_bytes(layout)),
          table_(queries.count * stride_) {
        parallel_for(n_threads, queries.count, double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                Summer::fill(layout, rounded_.values.data() + q * layout.n_pool, table_.data() + q * stride_);
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 50 * n_queries); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            scan(codes, begin, end, queries, best);
        };
    }

   private:
    using Summer = BlockSummer<Isa>;

    template <class Collector>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, Collector* best) const {
        const int64_t n_blocks = layout_.n_blocks();
        CodeReader reader(layout_, codes.data, codes.count);
        ExactScores<Isa, Collector> exact(codes, queries_, queries, best);
        for (int64_t i = begin; i < end; ++i) {
            if (!is_alive(codes.alive, i)) continue;
            const uint8_t* code = reader(i);
            if (sum_bytes(code, n_blocks) > layout_.n_bits) {  // invalid: counts exceed the code
                for (int64_t q = 0; q < queries.count; ++q) exact.offer(i, q);
                continue;
            }
            for (int64_t q = 0; q < queries.count;) {
                const int8_t* tables[2];
                int32_t sums[2];
                const int n = queries.count - q >= 2 ? 2 : 1;
                for (int s = 0; s < n; ++s) tables[s] = table_.data() + queries[q + s] * stride_;
                n == 2 ? Summer::template sum<2>(code, n_blocks, tables, sums)
                       : Summer::template sum<1>(code, n_blocks, tables, sums);
                for (int s = 0; s < n; ++s, ++q)
                    if (may_enter(rounded_, queries[q], sums[s], weight_of(codes, i), best[q])) exact.offer(i, q);
            }
        }
    }

    const Layout layout_;
    const ts_rows queries_;
    const Rounded rounded_;
    const int64_t stride_;
    std::vector<int8_t> table_;
};

}  // namespace
}  // namespace topsign
