// Searching by score: real-valued queries against the codes.
//
// Scores are exact. To find the few codes worth an exact sum, queries are rounded to 8 bits (rounding.h). Margins grow
// as n_bits, sums as its root: of long codes too many would pass, so that what was lost is rounded to 8 bits once more.
#pragma once

#include <cmath>
#include <optional>

#include "../core/table.h"
#include "few_scores.h"
#include "score_tiles.h"

namespace topsign {
namespace {

// Codes of so many bits, of which more queries than these pass, are summed a second time before they are exactly.
constexpr int64_t kLongBits = 2048, kManyPass = 2;
constexpr int64_t kVeryLongBits = 8192;  // nearly all codes would pass 8 bits
// A group of codes is summed together, some rows of each in turn: rows ascend, so those of a turn lie near each other,
// and a part of the table that stays in the fastest caches serves all.
constexpr int64_t kScoreGroup = 256, kTurn = 128;

// Their rounded values plus 128, a row of unsigned bytes for each signed location.
template <class Isa>
struct Tile : Steps {
    Table table;

    Tile(int n_threads, const Layout& layout, const Rounded& rounded, int64_t n_queries)
        : table(table_rows(layout) * kScoreTile) {
        constexpr int64_t kSquare = 64;
        using V = Vec<uint8_t, Isa::kBytes>;
        const auto fill = [&](int64_t begin) {
            uint8_t turned[kSquare][kScoreTile] = {};
            const int64_t n = std::min(kSquare, layout.n_pool - begin);
            for (int64_t q = 0; q < n_queries; ++q) {
                const int8_t* const values = &rounded.values[q * layout.n_pool + begin];
                for (int64_t j = 0; j < n; ++j) turned[j][q] = uint8_t(values[j] + 128);
            }
            for (int64_t j = 0; j < n; ++j) {
                uint8_t* const positive = table.bytes() + table_row(layout, begin + j, true) * kScoreTile;
                uint8_t* const negative = table.bytes() + table_row(layout, begin + j, false) * kScoreTile;
                for (int at = 0; at < kScoreTile; at += Isa::kBytes) {
                    const V values = load<V>(turned[j] + at);
                    store(positive + at, values);
                    store(negative + at, V{} - values);
                }
            }
        };
        parallel_for(n_threads, ceil_div(layout.n_pool, kSquare), 60 * double(n_queries),
                     [&](int64_t begin, int64_t end) {
                         for (int64_t square = begin; square < end; ++square) fill(kSquare * square);
                     });
        for (int64_t q = 0; q < n_queries; ++q) {
            steps[slot_of<Isa::kBytes>(q)] = rounded.steps[q];
            margins[slot_of<Isa::kBytes>(q)] = rounded.margins[q];
        }
    }
};

// Adds up to 255 rows. Bytes are added in pairs of 16 bits, and those in odd places once more by themselves: what they
// put into the sums of the pairs is taken out at the end.
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

// `finer`, where it is given, holds what the tile's rounding lost.
template <class Isa, class Row, class Collector>
void scan_tile(const ts_codes& codes, const ts_rows& queries, const Tile<Isa>& tile, const Tile<Isa>* finer,
               int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = n_bits + RowReader<Isa, Row>::kSpare;
    RowReader<Isa, Row> reader(codes.layout, codes.data, codes.count);
    std::vector<Row> rows(kScoreGroup * stride);
    std::vector<TileSums> sums(kScoreGroup);
    ScoreBounds<Isa, Isa::kBytes, Collector> bounds(codes, queries, best);
    for (int64_t next = begin; next < end;) {
        int64_t group[kScoreGroup], n_codes = 0;
        for (; next < end && n_codes < kScoreGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, &rows[n_codes * stride]);
            std::fill(sums[n_codes].sum, sums[n_codes].sum + kScoreTile, int32_t(-128 * n_bits));
            group[n_codes++] = next;
        }
        bounds.refresh();
        for (int64_t start = 0; start < n_bits; start += kTurn)
            for (int64_t c = 0; c < n_codes; ++c)
                add_tile_rows<Isa>(tile.table.bytes(), &rows[c * stride + start], std::min(kTurn, n_bits - start),
                                   sums[c]);
        for (int64_t c = 0; c < n_codes; ++c) {
            const int64_t i = group[c];
            uint64_t hits = reaching<Isa>(tile, sums[c], weight_of(codes, i), bounds.at);
            if (finer && count_ones(hits) > kManyPass) {
                TileSums lost;
                std::fill(lost.sum, lost.sum + kScoreTile, int32_t(-128 * n_bits));
                for (int64_t start = 0; start < n_bits; start += kTurn)
                    add_tile_rows<Isa>(finer->table.bytes(), &rows[c * stride + start], std::min(kTurn, n_bits - start),
                                       lost);
                hits = reaching<Isa>(*finer, lost, weight_of(codes, i), bounds.at, &tile, &sums[c]);
            }
            bounds.offer(hits, i);
        }
    }
}

template <class Isa, class Collector>
void scan_exactly(const ts_codes& codes, const ts_rows& queries, int64_t begin, int64_t end, Collector* best) {
    const int64_t n_pool = codes.layout.n_pool, bytes = ceil_div(n_pool, 8);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        for (int64_t q = 0; q < queries.count; ++q)
            offer_score(best[q], sum_signs<Isa>(codes.data + i * bytes, n_pool, queries.values + q * n_pool), codes, i);
    }
}

template <class Isa, class Collector>
Parts<Collector> search_tile(int n_threads, const CodeRanges& ranges, const ts_rows& queries,
                             const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    if (layout.signs())
        return scan_parts(n_threads, ranges, 0.15 * double(queries.count * layout.n_pool), empty,
                          [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                              scan_exactly<Isa>(codes, queries, begin, end, best);
                          });
    const bool few = queries.count <= (layout.fast() ? Isa::kFewScoresFast : Isa::kFewScoresCompact);
    if (read_by_tiles(layout) && (!few || layout.n_bits >= kVeryLongBits))
        return search_score_tiles<Isa>(n_threads, ranges, queries, empty);
    if (few) return search_few_scores<Isa>(n_threads, ranges, queries, empty);
    const bool twice = layout.n_bits >= kLongBits;
    const Rounded rounded = round_queries<Isa>(n_threads, queries, layout.n_bits, twice);
    const Tile<Isa> tile(n_threads, layout, rounded, queries.count);
    std::optional<Tile<Isa>> finer;
    if (twice)
        finer.emplace(n_threads, layout, round_lost<Isa>(n_threads, rounded, queries, layout.n_bits), queries.count);
    return scan_parts(
        n_threads, ranges, scan_cost(layout, 6 * queries.count), empty,
        [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
            if (narrow_rows(layout, 0))
                scan_tile<Isa, uint16_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
            else
                scan_tile<Isa, uint32_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
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
