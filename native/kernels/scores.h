// Searching by score: real-valued queries against the codes.
//
// Scores are exact. To find the few codes worth an exact sum, queries are rounded to 8 bits (rounding.h). Margins grow
// as n_bits, sums as its root: of long codes too many would pass, so that what was lost is rounded to 8 bits once more.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "../core/table.h"
#include "few_scores.h"

namespace topsign {
namespace {

constexpr int64_t kScoreTile = 64;  // queries that share a table
// Codes of so many bits, of which more queries than these pass, are summed a second time before they are exactly.
constexpr int64_t kLongBits = 2048, kManyPass = 2;
// A group of codes is summed together, some rows of each in turn: rows ascend, so those of a turn lie near each other,
// and a part of the table that stays in the fastest caches serves all.
constexpr int64_t kScoreGroup = 256, kTurn = 128;

struct alignas(64) TileSums {
    int32_t sum[kScoreTile];
};

// Where query q stands among the sums: a register's even bytes first, then its odd ones.
template <class Isa>
int slot_of(int64_t q) {
    constexpr int kBytes = Isa::kBytes;
    return int(q / kBytes * kBytes + q % 2 * (kBytes / 2) + q % kBytes / 2);
}

// Rounded values of up to 64 queries plus 128, a row of unsigned bytes for each signed location, with their steps and
// margins; the queries that are missing have none.
template <class Isa>
struct Tile {
    Table table;
    alignas(64) float steps[kScoreTile] = {}, margins[kScoreTile] = {};

    Tile(const Layout& layout, const Rounded& rounded, int64_t n_queries) : table(table_rows(layout) * kScoreTile) {
        constexpr int64_t kSquare = 64;
        using V = Vec<uint8_t, Isa::kBytes>;
        uint8_t turned[kSquare][kScoreTile] = {};
        for (int64_t begin = 0; begin < layout.n_pool; begin += kSquare) {
            const int64_t n = std::min(kSquare, layout.n_pool - begin);
            for (int64_t q = 0; q < n_queries; ++q)
                for (int64_t j = 0; j < n; ++j)
                    turned[j][q] = uint8_t(rounded.values[q * layout.n_pool + begin + j] + 128);
            for (int64_t j = 0; j < n; ++j) {
                uint8_t* const positive = table.bytes() + table_row(layout, begin + j, true) * kScoreTile;
                uint8_t* const negative = table.bytes() + table_row(layout, begin + j, false) * kScoreTile;
                for (int at = 0; at < kScoreTile; at += Isa::kBytes) {
                    const V values = load<V>(turned[j] + at);
                    store(positive + at, values);
                    store(negative + at, V{} - values);
                }
            }
        }
        for (int64_t q = 0; q < n_queries; ++q) {
            steps[slot_of<Isa>(q)] = rounded.steps[q];
            margins[slot_of<Isa>(q)] = rounded.margins[q];
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

// Slots, a bit each, whose rounded sums reach their bounds; `coarse`, where it is given, is added.
template <class Isa>
uint64_t reaching(const Tile<Isa>& tile, const TileSums& sums, float weight, const float* bounds,
                  const Tile<Isa>* coarse = nullptr, const TileSums* coarse_sums = nullptr) {
    using V = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, kLanes<V>>;
    const V flip = splat<V>(weight < 0 ? -1.f : 1.f);  // a negative weight turns the margin's lower end into the upper
    const auto reaches = [&](int at) {
        V sum = convert<V>(load<Ints>(sums.sum + at)) * load<V>(tile.steps + at);
        if (coarse) sum = convert<V>(load<Ints>(coarse_sums->sum + at)) * load<V>(coarse->steps + at) + sum;
        return (sum + load<V>(tile.margins + at) * flip) * splat<V>(weight) >= load<V>(bounds + at);
    };
    Ints some{};
    for (int at = 0; at < kScoreTile; at += kLanes<V>) some = some | reaches(at);
    uint64_t found = 0;
    if (any(some))
        for (int at = 0; at < kScoreTile; at += kLanes<V>) {
            const Ints lanes = reaches(at);
            for (int lane = 0; lane < kLanes<V>; ++lane) found |= uint64_t(lanes[lane] & 1) << (at + lane);
        }
    return found;
}

// `finer`, where it is given, holds what the tile's rounding lost.
template <class Isa, class Row, class Collector>
void scan_tile(const ts_codes& codes, const ts_rows& queries, const Tile<Isa>& tile, const Tile<Isa>* finer,
               int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = n_bits + RowReader<Isa, Row>::kSpare;
    RowReader<Isa, Row> reader(codes.layout, codes.data, codes.count);
    std::vector<Row> rows(kScoreGroup * stride);
    std::vector<TileSums> sums(kScoreGroup);
    ExactScores<Isa, Collector> exact(codes, queries, best);
    int query_at[kScoreTile] = {};
    alignas(64) float bounds[kScoreTile];
    std::fill(bounds, bounds + kScoreTile, std::numeric_limits<float>::infinity());
    for (int q = 0; q < queries.count; ++q) {
        query_at[slot_of<Isa>(q)] = q;
        bounds[slot_of<Isa>(q)] = -best[q].bound();
    }
    for (int64_t next = begin; next < end;) {
        int64_t group[kScoreGroup], n_codes = 0;
        for (; next < end && n_codes < kScoreGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, &rows[n_codes * stride]);
            std::fill(sums[n_codes].sum, sums[n_codes].sum + kScoreTile, int32_t(-128 * n_bits));
            group[n_codes++] = next;
        }
        for (int q = 0; q < queries.count; ++q) bounds[slot_of<Isa>(q)] = -best[q].bound();  // other threads lower them
        for (int64_t start = 0; start < n_bits; start += kTurn)
            for (int64_t c = 0; c < n_codes; ++c)
                add_tile_rows<Isa>(tile.table.bytes(), &rows[c * stride + start], std::min(kTurn, n_bits - start),
                                   sums[c]);
        for (int64_t c = 0; c < n_codes; ++c) {
            const int64_t i = group[c];
            uint64_t hits = reaching<Isa>(tile, sums[c], weight_of(codes, i), bounds);
            if (finer && count_ones(hits) > kManyPass) {
                TileSums lost;
                std::fill(lost.sum, lost.sum + kScoreTile, int32_t(-128 * n_bits));
                for (int64_t start = 0; start < n_bits; start += kTurn)
                    add_tile_rows<Isa>(finer->table.bytes(), &rows[c * stride + start], std::min(kTurn, n_bits - start),
                                       lost);
                hits = reaching<Isa>(*finer, lost, weight_of(codes, i), bounds, &tile, &sums[c]);
            }
            for (; hits; hits &= hits - 1) {
                const int slot = count_trailing_zeros(hits), q = query_at[slot];
                exact.offer(i, q);
                bounds[slot] = -best[q].bound();
            }
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
Parts<Collector> search_tile(int n_threads, const ts_codes& codes, const ts_rows& queries,
                             const std::vector<Collector>& empty) {
    const Layout layout(codes.layout);
    if (layout.signs())
        return scan_parts(
            n_threads, codes.count, 0.15 * double(queries.count * layout.n_pool), empty,
            [&](int64_t begin, int64_t end, Collector* best) { scan_exactly<Isa>(codes, queries, begin, end, best); });
    if (queries.count <= (layout.fast() ? Isa::kFewScoresFast : Isa::kFewScoresCompact))
        return search_few_scores<Isa>(n_threads, codes, queries, empty);
    const bool twice = layout.n_bits >= kLongBits;
    const Rounded rounded = round_queries<Isa>(queries, layout.n_bits, twice);
    const Tile<Isa> tile(layout, rounded, queries.count);
    std::optional<Tile<Isa>> finer;
    if (twice) finer.emplace(layout, round_lost<Isa>(rounded, queries, layout.n_bits), queries.count);
    return scan_parts(
        n_threads, codes.count, scan_cost(layout, 6 * queries.count), empty,
        [&](int64_t begin, int64_t end, Collector* best) {
            if (narrow_rows(layout, 0))
                scan_tile<Isa, uint16_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
            else
                scan_tile<Isa, uint32_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
        });
}

template <class Isa>
void search_scores(int n_threads, const ts_codes& codes, const ts_rows& queries, const ts_best& asked) {
    auto* const scores = static_cast<float*>(asked.values);
    for (int64_t first = 0; first < queries.count; first += kScoreTile) {
        const int64_t count = std::min(kScoreTile, queries.count - first);
        const ts_rows tile{queries.values + first * queries.width, count, queries.width};
        const std::vector<Best<float>> empty(count, Best<float>(asked.k));
        write_best(search_tile<Isa>(n_threads, codes, tile, empty), first, asked.k, scores, asked.positions);
    }
    for (int64_t i = 0; i < queries.count * asked.k; ++i) scores[i] = -scores[i];
}

template <class Isa>
void within_scores(int n_threads, const ts_codes& codes, const ts_rows& queries, const ts_found& asked) {
    auto* const scores = static_cast<float*>(asked.values);
    const auto* const thresholds = static_cast<const float*>(asked.bounds);
    int64_t total = 0;
    for (int64_t first = 0; first < queries.count; first += kScoreTile) {
        const int64_t count = std::min(kScoreTile, queries.count - first);
        const ts_rows tile{queries.values + first * queries.width, count, queries.width};
        std::vector<Within<float>> empty;  // a score of exactly the threshold is within: the next key above it is not
        for (int64_t q = first; q < first + count; ++q)
            empty.emplace_back(std::nextafter(-thresholds[q], std::numeric_limits<float>::infinity()));
        write_within(search_tile<Isa>(n_threads, codes, tile, empty), first, asked.capacity, total, scores,
                     asked.positions, asked.counts);
    }
    for (int64_t i = 0; i < std::min(total, asked.capacity); ++i) scores[i] = -scores[i];
}

}  // namespace
}  // namespace topsign
