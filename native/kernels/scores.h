// Search by score: real-valued queries.
//
// Scores are exact. Queries are rounded to 8 bits to find the few codes that need an exact sum (rounding.h). Margins
// grow like n_bits but sums like its square root, so for long codes the rounding error is itself rounded to 8 bits.
#pragma once

#include <cmath>
#include <optional>

#include "../core/table.h"
#include "few_scores.h"
#include "score_tiles.h"

namespace topsign {
namespace {

// Codes of at least kLongBits bits that pass for more than kManyPass queries get a second rounded sum.
constexpr int64_t kLongBits = 2048, kManyPass = 2;
constexpr int64_t kVeryLongBits = 8192;  // nearly all codes would pass 8 bits
// A group of codes is summed together, some rows of each in turn. Rows ascend within a code, so the rows of a turn use
// a small part of the table, which stays in the near caches.
constexpr int64_t kScoreGroup = 256, kTurn = 128;

// Table of up to 64 queries: rows of unsigned bytes, the rounded values plus 128. where(j) returns the row of value j
// and the row of its negative, or -1.
template <class Isa>
struct Tile : Steps {
    Table table;

    template <class Where>
    Tile(int n_threads, int64_t n_rows, const Rounded& rounded, int64_t n_queries, const Where& where)
        : table(n_rows * kScoreTile) {
        constexpr int64_t kSquare = 64;
        using V = Vec<uint8_t, Isa::kBytes>;
        const int64_t n_values = int64_t(rounded.values.size()) / n_queries;
        const auto fill = [&](int64_t begin) {
            uint8_t turned[kSquare][kScoreTile] = {};
            const int64_t n = std::min(kSquare, n_values - begin);
            for (int64_t q = 0; q < n_queries; ++q) {
                const int8_t* const values = &rounded.values[q * n_values + begin];
                for (int64_t j = 0; j < n; ++j) turned[j][q] = uint8_t(values[j] + 128);
            }
            for (int64_t j = 0; j < n; ++j) {
                const auto [row, negative_row] = where(begin + j);
                for (int at = 0; at < kScoreTile; at += Isa::kBytes) {
                    const V values = load<V>(turned[j] + at);
                    store(table.bytes() + row * kScoreTile + at, values);
                    if (negative_row >= 0) store(table.bytes() + negative_row * kScoreTile + at, V{} - values);
                }
            }
        };
        parallel_for(n_threads, ceil_div(n_values, kSquare), 60 * double(n_queries), [&](int64_t begin, int64_t end) {
            for (int64_t square = begin; square < end; ++square) fill(kSquare * square);
        });
        for (int64_t q = 0; q < n_queries; ++q) {
            steps[slot_of<Isa::kBytes>(q)] = rounded.steps[q];
            margins[slot_of<Isa::kBytes>(q)] = rounded.margins[q];
        }
    }
};

// Adds up to 255 rows. Pairs of bytes are added as 16-bit words, and odd bytes also separately; their contribution to
// the words is subtracted at the end.
template <class Isa, class Row>
void add_tile_rows(const uint8_t* table, const Row* rows, int64_t n, TileSums& to) {
    using V = Vec<uint16_t, Isa::kBytes / 2>;
    constexpr int kRegisters = kScoreTile / Isa::kBytes;
    V all[kRegisters] = {}, odd[kRegisters] = {};
    for (int64_t j = 0; j < n; ++j)
        for (int r = 0; r < kRegisters; ++r) {
            const V values = load<V>(table + size_t(rows[j]) * kScoreTile + r * Isa::kBytes);
            all[r] = all[r] + values;
            odd[r] = odd[r] + (values >> 8);
        }
    uint16_t sums[kScoreTile];
    for (int r = 0; r < kRegisters; ++r) {
        store(sums + r * Isa::kBytes, all[r] - (odd[r] << 8));
        store(sums + r * Isa::kBytes + kLanes<V>, odd[r]);
    }
    for (int i = 0; i < kScoreTile; ++i) to.sum[i] += sums[i];
}

// Reads codes as n_rows rows of a tile. `finer`, if given, holds the rounding errors of the tile.
template <class Isa, class Row, class Reader, class Collector>
void scan_tile(const ts_codes& codes, Reader& reader, int64_t n_rows, int64_t turn, const ts_rows& queries,
               const Tile<Isa>& tile, const Tile<Isa>* finer, int64_t begin, int64_t end, Collector* best) {
    const int64_t stride = n_rows + Reader::kSpare, most = std::min(kScoreGroup, end - begin);
    std::vector<Row> rows(most * stride);
    std::vector<TileSums> sums(most);
    ScoreBounds<Isa, Isa::kBytes, Collector> bounds(codes, queries, best);
    for (int64_t next = begin; next < end;) {
        int64_t group[kScoreGroup], n_codes = 0;
        for (; next < end && n_codes < kScoreGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, &rows[n_codes * stride]);
            std::fill(sums[n_codes].sum, sums[n_codes].sum + kScoreTile, int32_t(-128 * n_rows));
            group[n_codes++] = next;
        }
        bounds.refresh();
        for (int64_t start = 0; start < n_rows; start += turn)
            for (int64_t c = 0; c < n_codes; ++c)
                add_tile_rows<Isa>(tile.table.bytes(), &rows[c * stride + start], std::min(turn, n_rows - start),
                                   sums[c]);
        for (int64_t c = 0; c < n_codes; ++c) {
            const int64_t i = group[c];
            uint64_t hits = reaching<Isa>(tile, sums[c], weight_of(codes, i), bounds.at);
            if (finer && count_ones(hits) > kManyPass) {
                TileSums lost;
                std::fill(lost.sum, lost.sum + kScoreTile, int32_t(-128 * n_rows));
                for (int64_t start = 0; start < n_rows; start += turn)
                    add_tile_rows<Isa>(finer->table.bytes(), &rows[c * stride + start], std::min(turn, n_rows - start),
                                       lost);
                hits = reaching<Isa>(*finer, lost, weight_of(codes, i), bounds.at, &tile, &sums[c]);
            }
            bounds.offer(hits, i);
        }
    }
}

// Reads a sign code as rows of a tile with sixteen rows per four bits.
template <class Row>
class NibbleReader {
   public:
    static constexpr int64_t kSpare = 1;

    explicit NibbleReader(const ts_codes& codes) : data_(codes.data), bytes_(ceil_div(codes.layout.n_pool, 8)) {}

    void read(int64_t i, Row* rows) const {
        const uint8_t* const code = data_ + i * bytes_;
        for (int64_t b = 0; b < bytes_; ++b) {
            rows[2 * b] = Row(32 * b + (code[b] & 15));
            rows[2 * b + 1] = Row(32 * b + 16 + (code[b] >> 4));
        }
    }

   private:
    const uint8_t* const data_;
    const int64_t bytes_;
};

// Sums of the values of queries at four locations, for all sixteen combinations of signs.
inline std::vector<float> nibble_sums(const ts_rows& queries) {
    const int64_t n_nibbles = 2 * ceil_div(queries.width, 8);
    std::vector<float> sums(queries.count * n_nibbles * 16);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t j = 0; j < n_nibbles; ++j) {
            double of[16] = {0};
            for (int64_t bit = 0; bit < 4 && 4 * j + bit < queries.width; ++bit) {
                const double value = queries.values[q * queries.width + 4 * j + bit];
                for (int signs = 0; signs < 16; ++signs) of[signs] += signs >> bit & 1 ? value : -value;
            }
            std::copy(of, of + 16, &sums[(q * n_nibbles + j) * 16]);
        }
    return sums;
}

// Exact sums with the signs of the whole pool. There is nothing to prepare.
template <class Isa>
class WholeSums {
   public:
    static constexpr int64_t kGroup = 1;

    WholeSums(const Layout& layout, const ts_rows& queries) : layout_(layout), queries_(queries) {}

    double cost(int64_t n_queries) const { return 0.15 * double(n_queries * layout_.n_pool); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            const int64_t n_pool = layout_.n_pool, bytes = ceil_div(n_pool, 8);
            for (int64_t i = begin; i < end; ++i) {
                if (!is_alive(codes.alive, i)) continue;
                for (int64_t q = 0; q < queries.count; ++q) {
                    const float* const query = queries_.values + queries[q] * n_pool;
                    offer_score(best[q], sum_signs<Isa>(codes.data + i * bytes, n_pool, query), codes, i);
                }
            }
        };
    }

   private:
    const Layout layout_;
    const ts_rows queries_;
};

// Calls use(tables) with tables of queries that are compared in any subset.
template <class Isa, class Use>
auto with_tables(int n_threads, const Layout& layout, const ts_rows& queries, const Use& use) {
    if (layout.signs()) return use(WholeSums<Isa>(layout, queries));
    if (read_by_tiles(layout) && layout.n_bits >= kVeryLongBits)
        return use(WideTables<Isa>(n_threads, layout, queries));
    if constexpr (Isa::kPermutesBlocks) {
        if (CodeGroups<Isa>::serves(layout)) return use(ValueGroups<Isa, 1>(n_threads, layout, queries));
    } else if constexpr (Isa::kLooksUp) {
        if (layout.fast()) return use(RoundedBlocks<Isa>(n_threads, layout, queries));
    }
    return use(RoundedTables<Isa>(n_threads, layout, queries));
}

// Larger values could overflow and are not rounded.
constexpr float kLargestRounded = 1e30f;
constexpr int64_t kFewSigns = 2;     // up to this many queries, exact sums are as fast as a tile
constexpr int64_t kNibbleTurn = 24;  // rows per turn, whose part of the table stays in the first-level cache

template <class Isa, class Collector>
Parts<Collector> search_signs(int n_threads, const CodeRanges& ranges, const ts_rows& queries,
                              const std::vector<Collector>& empty) {
    bool exactly = queries.count <= kFewSigns;
    for (int64_t i = 0; i < queries.count * queries.width && !exactly; ++i)
        exactly = !(std::abs(queries.values[i]) < kLargestRounded);
    if (exactly) return scan_tables(n_threads, ranges, WholeSums<Isa>(ranges.layout(), queries), empty);
    const std::vector<float> sums = nibble_sums(queries);
    const int64_t n_values = int64_t(sums.size()) / queries.count, n_nibbles = n_values / 16;
    Rounded rounded = round_queries<Isa>(n_threads, ts_rows{sums.data(), queries.count, n_values}, n_nibbles);
    for (int64_t q = 0; q < queries.count; ++q)  // sums of four are rounded to float32
        rounded.margins[q] += float(1e-6 * double(n_nibbles) * double(rounded.largest[q]));
    const Tile<Isa> tile(n_threads, n_values, rounded, queries.count,
                         [](int64_t row) { return std::make_pair(row, int64_t(-1)); });
    return scan_parts(n_threads, ranges, double(n_nibbles) * (0.5 + 0.03 * double(queries.count)), empty,
                      [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                          NibbleReader<uint32_t> reader(codes);
                          scan_tile<Isa, uint32_t>(codes, reader, n_nibbles, kNibbleTurn, queries, tile, nullptr, begin,
                                                   end, best);
                      });
}

template <class Isa, class Collector>
Parts<Collector> search_tile(int n_threads, const CodeRanges& ranges, const ts_rows& queries,
                             const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    if (layout.signs()) return search_signs<Isa>(n_threads, ranges, queries, empty);
    const bool few = queries.count <= (layout.fast() ? Isa::kFewScoresFast : Isa::kFewScoresCompact);
    if (read_by_tiles(layout) && (!few || queries.count > kFewOfLargePools || layout.n_bits >= kVeryLongBits))
        return search_score_tiles<Isa>(n_threads, ranges, queries, empty);
    if (few) {
        if constexpr (Isa::kPermutesBlocks) {
            // Passes of 16 queries read codes once for all; fewer queries would be padded.
            if (CodeGroups<Isa>::serves(layout) && queries.count >= 16)
                return scan_tables(n_threads, ranges, ValueGroups<Isa, 16>(n_threads, layout, queries), empty);
            if (CodeGroups<Isa>::serves(layout))
                return scan_tables(n_threads, ranges, ValueGroups<Isa, 8>(n_threads, layout, queries), empty);
        }
        return with_tables<Isa>(n_threads, layout, queries,
                                [&](const auto& tables) { return scan_tables(n_threads, ranges, tables, empty); });
    }
    const bool twice = layout.n_bits >= kLongBits;
    const Rounded rounded = round_queries<Isa>(n_threads, queries, layout.n_bits, twice);
    const auto where = [&](int64_t location) {
        return std::make_pair(table_row(layout, location, true), table_row(layout, location, false));
    };
    const Tile<Isa> tile(n_threads, table_rows(layout), rounded, queries.count, where);
    std::optional<Tile<Isa>> finer;
    if (twice)
        finer.emplace(n_threads, table_rows(layout), round_lost<Isa>(n_threads, rounded, queries, layout.n_bits),
                      queries.count, where);
    const auto scan = [&](auto row, const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
        using Row = decltype(row);
        RowReader<Isa, Row> reader(layout, codes.data, codes.count);
        scan_tile<Isa, Row>(codes, reader, layout.n_bits, kTurn, queries, tile, finer ? &*finer : nullptr, begin, end,
                            best);
    };
    return scan_parts(n_threads, ranges, scan_cost(layout, 6 * queries.count), empty,
                      [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                          narrow_rows(layout, 0) ? scan(uint16_t(), codes, begin, end, best)
                                                 : scan(uint32_t(), codes, begin, end, best);
                      });
}

template <class Isa>
void rank_scores(int n_threads, const ts_code_ranges& codes, const ts_rows& queries, const ts_best& asked) {
    auto* const scores = static_cast<float*>(asked.values);
    for (int64_t first = 0; first < queries.count; first += kScoreTile) {
        const int64_t count = std::min(kScoreTile, queries.count - first);
        const ts_rows tile{queries.values + first * queries.width, count, queries.width};
        Tops<float> tops(count, asked.k);
        search_tile<Isa>(n_threads, CodeRanges(codes), tile, tops.collectors());
        tops.write(scores + first * asked.k, asked.rows + first * asked.k);
    }
    for (int64_t i = 0; i < queries.count * asked.k; ++i) scores[i] = -scores[i];
}

template <class Isa>
void within_scores(int n_threads, const ts_code_ranges& codes, const ts_rows& queries, const ts_found& asked) {
    auto* const scores = static_cast<float*>(asked.values);
    const auto* const thresholds = static_cast<const float*>(asked.bounds);
    int64_t total = 0;
    for (int64_t first = 0; first < queries.count; first += kScoreTile) {
        const int64_t count = std::min(kScoreTile, queries.count - first);
        const ts_rows tile{queries.values + first * queries.width, count, queries.width};
        std::vector<Within<float>> empty;  // a score of exactly the threshold is within: the next key above it is not
        for (int64_t q = first; q < first + count; ++q) empty.emplace_back(just_above(-thresholds[q]));
        write_within(search_tile<Isa>(n_threads, CodeRanges(codes), tile, empty), first, asked.capacity, total, scores,
                     asked.rows, asked.counts);
    }
    for (int64_t i = 0; i < std::min(total, asked.capacity); ++i) scores[i] = -scores[i];
}

}  // namespace
}  // namespace topsign
