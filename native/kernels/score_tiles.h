// Scores for large pools, one tile of the pool at a time.
//
// Codes of large pools are long, so 8-bit margins would let too many codes pass. Batches are rounded to 12 bits, and 16
// such values are added in 16 bits before widening to 32; few queries are rounded to 16 bits and summed one by one.
#pragma once

#include "../core/table.h"
#include "score_bounds.h"
#include "tiles.h"

namespace topsign {
namespace {

constexpr int64_t kWideTile = 1024, kSingleTile = 16384;  // rows of the pool
constexpr int64_t kTiledScores = 512;                     // codes that share a tile while it is in the cache
constexpr int kWideLimit = 2047, kWideRun = 16;           // sums of kWideRun such values fit 16 bits
constexpr int64_t kSingleQueries = 4;                     // up to this many queries are summed one by one

// Table of up to 64 queries, one row of 16-bit values per signed location; row numbers are in units of 8 bytes.
template <class Isa>
struct WideTable : Steps {
    static constexpr int kPerRegister = Isa::kBytes / 2, kShift = 4;
    static constexpr int64_t kRowBytes = 2 * kScoreTile, kTileBytes = 2 * kWideTile * kRowBytes;
    Table table;

    WideTable(int n_threads, const Layout& layout, const RoundedTo<int16_t>& rounded, int64_t n_queries)
        : table(ceil_div(layout.n_pool, kWideTile) * kTileBytes) {
        using V = Vec<int16_t, kPerRegister>;
        constexpr int64_t kSquare = 64;
        const auto fill = [&](int64_t begin) {
            int16_t turned[kSquare][kScoreTile] = {};
            const int64_t n = std::min(kSquare, layout.n_pool - begin);
            for (int64_t q = 0; q < n_queries; ++q) {
                const int16_t* const values = &rounded.values[q * layout.n_pool + begin];
                for (int64_t j = 0; j < n; ++j) turned[j][q] = values[j];
            }
            for (int64_t j = 0; j < n; ++j) {
                uint8_t* const positive = table.bytes() + table_row(layout, begin + j, true) * kRowBytes;
                uint8_t* const negative = table.bytes() + table_row(layout, begin + j, false) * kRowBytes;
                for (int at = 0; at < kScoreTile; at += kPerRegister) {
                    const V values = load<V>(turned[j] + at);
                    store(positive + 2 * at, values);
                    store(negative + 2 * at, V{} - values);
                }
            }
        };
        parallel_for(n_threads, ceil_div(layout.n_pool, kSquare), 100 * double(n_queries),
                     [&](int64_t begin, int64_t end) {
                         for (int64_t square = begin; square < end; ++square) fill(kSquare * square);
                     });
        for (int64_t q = 0; q < n_queries; ++q) {
            steps[slot_of<kPerRegister>(q)] = rounded.steps[q];
            margins[slot_of<kPerRegister>(q)] = rounded.margins[q];
        }
    }

    const uint8_t* tile(int64_t tile) const { return table.bytes() + tile * kTileBytes; }

    // Prefetches a part of the next tile while one code of a group is summed.
    void prefetch(int64_t slot, int64_t tile) const {
        constexpr int64_t kPart = kTileBytes / kTiledScores;
        for (int64_t at = slot * kPart; at < (slot + 1) * kPart; at += 64) Isa::prefetch(this->tile(tile) + at);
    }
};

template <class Isa>
void add_wide_rows(const uint8_t* table, const uint16_t* rows, int64_t n, TileSums& to) {
    using V = Vec<uint16_t, Isa::kBytes / 2>;
    using Pairs = Vec<uint32_t, Isa::kBytes / 4>;
    using Sums = Vec<int32_t, Isa::kBytes / 4>;
    constexpr int kRegisters = int(2 * kScoreTile) / Isa::kBytes;
    Sums even[kRegisters] = {}, odd[kRegisters] = {};
    for (int64_t j = 0; j < n;) {
        V run[kRegisters] = {};
        const auto add = [&](int64_t at) {
            for (int r = 0; r < kRegisters; ++r)
                run[r] = run[r] + load<V>(table + size_t(rows[at]) * 8 + r * Isa::kBytes);
        };
        if (j + kWideRun <= n)
            for (int step = 0; step < kWideRun; ++step) add(j + step);
        else
            for (int64_t at = j; at < n; ++at) add(at);
        j += kWideRun;
        for (int r = 0; r < kRegisters; ++r) {
            even[r] = even[r] + (cast<Sums>(cast<Pairs>(run[r]) << 16) >> 16);
            odd[r] = odd[r] + (cast<Sums>(run[r]) >> 16);
        }
    }
    for (int r = 0; r < kRegisters; ++r) {
        int32_t* const sums = to.sum + r * (Isa::kBytes / 2);
        store(sums, load<Sums>(sums) + even[r]);
        store(sums + kLanes<Sums>, load<Sums>(sums + kLanes<Sums>) + odd[r]);
    }
}

// Processes groups of codes tile by tile: calls add(slot, tile, rows, n) for each code and tile of a group, then
// done(positions, n_codes).
template <class Isa, int64_t kTileRows, class Start, class Add, class Done>
void for_each_tile_of_groups(const ts_codes& codes, int64_t begin, int64_t end, int shift, const Start& start,
                             const Add& add, const Done& done) {
    using Reader = TileReader<Isa, kTileRows>;
    const Layout layout(codes.layout);
    Reader reader(layout, codes.data, codes.count, kTiledScores, shift);
    std::vector<uint16_t> room(Reader::kRoom);
    uint16_t* const rows = room.data() + Reader::kBefore;
    for (int64_t next = begin; next < end;) {
        int64_t group[kTiledScores], n_codes = 0;
        for (; next < end && n_codes < kTiledScores; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.start(n_codes, next);
            start(n_codes);
            group[n_codes++] = next;
        }
        for (int64_t tile = 0; tile < Reader::n_tiles(layout); ++tile)
            for (int64_t c = 0; c < n_codes; ++c) add(c, tile, rows, reader.read(c, tile, rows));
        done(group, n_codes);
    }
}

template <class Isa, class Collector>
void scan_wide(const ts_codes& codes, const ts_rows& queries, const WideTable<Isa>& table, int64_t begin, int64_t end,
               Collector* best) {
    ScoreBounds<Isa, WideTable<Isa>::kPerRegister, Collector> bounds(codes, queries, best);
    std::vector<TileSums> sums(kTiledScores);
    for_each_tile_of_groups<Isa, kWideTile>(
        codes, begin, end, WideTable<Isa>::kShift,
        [&](int64_t slot) {
            std::fill(sums[slot].sum, sums[slot].sum + kScoreTile, 0);
            if (slot == 0) bounds.refresh();
        },
        [&](int64_t slot, int64_t tile, const uint16_t* rows, int64_t n) {
            table.prefetch(slot, tile + 1);
            add_wide_rows<Isa>(table.tile(tile), rows, n, sums[slot]);
        },
        [&](const int64_t* group, int64_t n_codes) {
            bounds.expect(table, codes, sums.data(), group, n_codes);
            for (int64_t c = 0; c < n_codes; ++c)
                bounds.offer(reaching<Isa>(table, sums[c], weight_of(codes, group[c]), bounds.at), group[c]);
        });
}

// Tables of queries that are summed one by one: 16-bit values by signed location.
template <class Isa>
class WideTables {
   public:
    static constexpr int64_t kGroup = kTiledScores;

    WideTables(int n_threads, const Layout& layout, const ts_rows& queries)
        : layout_(layout),
          queries_(queries),
          rounded_(round_queries<Isa, int16_t, INT16_MAX>(n_threads, queries, layout.n_bits)),
          stride_(ceil_div(layout.n_pool, kSingleTile) * 2 * kSingleTile),
          table_(queries.count * stride_) {
        parallel_for(n_threads, queries.count, 2 * double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                for (int64_t location = 0; location < layout.n_pool; ++location) {
                    const int16_t value = rounded_.values[q * layout.n_pool + location];
                    table_[q * stride_ + table_row(layout, location, true)] = value;
                    table_[q * stride_ + table_row(layout, location, false)] = int16_t(-value);
                }
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 80 * n_queries); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            scan(codes, begin, end, queries, best);
        };
    }

   private:
    template <class Collector>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, Collector* best) const {
        ExactScores<Isa, Collector> exact(codes, queries_, queries, best);
        const int64_t n_queries = queries.count;
        std::vector<int64_t> sums(kTiledScores * n_queries);
        for_each_tile_of_groups<Isa, kSingleTile>(
            codes, begin, end, 0, [&](int64_t slot) { std::fill_n(sums.begin() + slot * n_queries, n_queries, 0); },
            [&](int64_t slot, int64_t tile, const uint16_t* rows, int64_t n) {
                for (int64_t q = 0; q < n_queries; ++q) {
                    const int16_t* values = table_.data() + queries[q] * stride_ + tile * 2 * kSingleTile;
                    int64_t sum[4] = {0, 0, 0, 0}, j = 0;
                    for (; j + 4 <= n; j += 4)
                        for (int s = 0; s < 4; ++s) sum[s] += values[rows[j + s]];
                    for (; j < n; ++j) sum[0] += values[rows[j]];
                    sums[slot * n_queries + q] += sum[0] + sum[1] + sum[2] + sum[3];
                }
            },
            [&](const int64_t* group, int64_t n_codes) {
                for (int64_t c = 0; c < n_codes; ++c)
                    for (int64_t q = 0; q < n_queries; ++q)
                        if (may_enter(rounded_, queries[q], sums[c * n_queries + q], weight_of(codes, group[c]),
                                      best[q]))
                            exact.offer(group[c], q);
            });
    }

    const Layout layout_;
    const ts_rows queries_;
    const RoundedTo<int16_t> rounded_;
    const int64_t stride_;
    std::vector<int16_t> table_;
};

template <class Isa, class Collector>
Parts<Collector> search_score_tiles(int n_threads, const CodeRanges& ranges, const ts_rows& queries,
                                    const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    if (queries.count <= kSingleQueries)
        return scan_tables(n_threads, ranges, WideTables<Isa>(n_threads, layout, queries), empty);
    const auto rounded = round_queries<Isa, int16_t, kWideLimit>(n_threads, queries, layout.n_bits);
    const WideTable<Isa> table(n_threads, layout, rounded, queries.count);
    return scan_parts(
        n_threads, ranges, scan_cost(layout, 6 * queries.count), empty,
        [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
            scan_wide<Isa>(codes, queries, table, begin, end, best);
        },
        kTiledScores);
}

}  // namespace
}  // namespace topsign
