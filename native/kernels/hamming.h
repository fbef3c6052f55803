// Search by Hamming distance: selects the scan for the size of the batch.
#pragma once

#include "block_hamming.h"
#include "code_groups.h"
#include "few_hamming.h"
#include "plane_tiles.h"
#include "planes.h"
#include "sums.h"
#include "word_hamming.h"

namespace topsign {
namespace {

// Signs of the whole pool: differing bits, optionally under a mask.
template <class Collector>
void scan_signs(const ts_codes& codes, const ts_signs& queries, int64_t begin, int64_t end, Collector* best) {
    const int64_t bytes = ceil_div(codes.layout.n_pool, 8);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = codes.data + i * bytes;
        for (int64_t q = 0; q < queries.count; ++q) {
            const uint8_t* mask = queries.masks ? queries.masks + q * bytes : nullptr;
            const int32_t count = count_differing(code, queries.bits + q * bytes, mask, bytes);
            if (count < best[q].bound()) best[q].offer(count, i);
        }
    }
}

// Signs of queries as they are. Those of a list are copied, because pairs are compared faster than lists are read.
class WholeSigns {
   public:
    static constexpr int64_t kGroup = 1;

    WholeSigns(const Layout& layout, const ts_signs& queries)
        : layout_(layout), bytes_(ceil_div(layout.n_pool, 8)), queries_(queries) {}

    double cost(int64_t n_queries) const { return 0.01 * double(n_queries * layout_.n_pool); }

    auto start() const {
        return [this, bits = std::vector<uint8_t>(), masks = std::vector<uint8_t>()](
                   const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) mutable {
            if (!queries.numbers) return scan_signs(codes, queries_, begin, end, best);
            const ts_signs some{copy(queries_.bits, queries, bits), copy(queries_.masks, queries, masks),
                                queries.count};
            scan_signs(codes, some, begin, end, best);
        };
    }

   private:
    const uint8_t* copy(const uint8_t* from, const QueryList& queries, std::vector<uint8_t>& to) const {
        if (!from) return nullptr;
        to.resize(kMostListed * bytes_);
        for (int64_t q = 0; q < queries.count; ++q) std::memcpy(&to[q * bytes_], from + queries[q] * bytes_, bytes_);
        return to.data();
    }

    const Layout layout_;
    const int64_t bytes_;
    const ts_signs queries_;
};

// Calls use(tables) with tables of queries that are compared in any subset, the fastest for a single query.
template <class Isa, class Use>
auto with_tables(int n_threads, const Layout& layout, const ts_signs& queries, const Use& use) {
    if (layout.signs()) return use(WholeSigns(layout, queries));
    if constexpr (Isa::kLooksUp) {
        using Compact = typename Isa::CompactCounter;
        if (Compact::serves(layout)) return use(CounterTables<Isa, Compact>(n_threads, layout, queries));
    }
    if constexpr (Isa::kPermutesBlocks) {
        if (CodeGroups<Isa>::serves(layout)) return use(SignGroups<Isa>(n_threads, layout, queries));
    } else if constexpr (Isa::kLooksUp) {
        if (layout.fast()) return use(BlockSigns<Isa>(layout, queries));
    }
    return use(ByteTables<Isa>(n_threads, layout, queries));
}

// Whether these tables are also the fastest for a few queries.
template <class Isa>
bool serves_few(const Layout& layout) {
    if (layout.signs()) return true;
    if constexpr (Isa::kLooksUp && !Isa::kPermutesBlocks) return layout.fast() || Isa::CompactCounter::serves(layout);
    return false;
}

template <class Isa, int Side, class Collector>
Parts<Collector> search_sides(int n_threads, const CodeRanges& ranges, const ts_signs& queries,
                              const std::vector<Collector>& empty) {
    return (read_by_tiles(ranges.layout()) ? search_plane_tiles<Isa, Side, Collector>
                                           : search_planes<Isa, Side, Collector>)(n_threads, ranges, queries, empty);
}

template <class Isa, class Collector>
Parts<Collector> search_tile(int n_threads, const CodeRanges& ranges, const ts_signs& queries,
                             const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    const int64_t few = layout.signs() ? queries.count : layout.fast() ? Isa::kFewFast : Isa::kFewCompact;
    if (queries.count <= (read_by_tiles(layout) ? std::min(few, kFewOfLargePools) : few)) {
        if constexpr (Isa::kPermutesBlocks) {
            if (queries.count > 1 && CodeGroups<Isa>::serves(layout))
                return scan_tables(n_threads, ranges, BitGroups<Isa>(layout, queries), empty);
        }
        if (queries.count == 1 || serves_few<Isa>(layout))
            return with_tables<Isa>(n_threads, layout, queries,
                                    [&](const auto& tables) { return scan_tables(n_threads, ranges, tables, empty); });
    }
    using Narrow = typename Isa::Narrow;
    if (queries.count <= 64) return search_sides<Narrow, Narrow::kBytes / 8>(n_threads, ranges, queries, empty);
    if constexpr (Isa::kBytes > 32) {
        if (queries.count <= 256) return search_sides<Narrow, 1>(n_threads, ranges, queries, empty);
    }
    return search_sides<Isa, 1>(n_threads, ranges, queries, empty);
}

// Calls search(queries, first) for each group of queries that share a table.
template <class Isa, class Search>
void for_each_tile(const CodeRanges& ranges, const ts_signs& queries, const Search& search) {
    constexpr int64_t kTile = Isa::kBytes * 8;
    const int64_t bytes = ceil_div(ranges.layout().n_pool, 8);
    for (int64_t first = 0; first < queries.count; first += kTile) {
        const uint8_t* masks = queries.masks ? queries.masks + first * bytes : nullptr;
        search(ts_signs{queries.bits + first * bytes, masks, std::min(kTile, queries.count - first)}, first);
    }
}

template <class Isa>
void rank_mismatches(int n_threads, const ts_code_ranges& codes, const ts_signs& queries, const ts_best& asked) {
    const CodeRanges ranges(codes);
    for_each_tile<Isa>(ranges, queries, [&](const ts_signs& tile, int64_t first) {
        Tops<int32_t> tops(tile.count, asked.k);
        search_tile<Isa>(n_threads, ranges, tile, tops.collectors());
        tops.write(static_cast<int32_t*>(asked.values) + first * asked.k, asked.rows + first * asked.k);
    });
}

template <class Isa>
void within_mismatches(int n_threads, const ts_code_ranges& codes, const ts_signs& queries, const ts_found& asked) {
    const CodeRanges ranges(codes);
    int64_t total = 0;
    for_each_tile<Isa>(ranges, queries, [&](const ts_signs& tile, int64_t first) {
        const auto* radii = static_cast<const int32_t*>(asked.bounds) + first;
        std::vector<Within<int32_t>> empty;
        for (int64_t q = 0; q < tile.count; ++q) empty.emplace_back(just_above(radii[q]));
        const auto parts = search_tile<Isa>(n_threads, ranges, tile, empty);
        write_within(parts, first, asked.capacity, total, static_cast<int32_t*>(asked.values), asked.rows,
                     asked.counts);
    });
}

}  // namespace
}  // namespace topsign
