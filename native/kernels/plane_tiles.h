// Bit planes for large pools, one tile of the pool at a time.
#pragma once

#include "planes.h"
#include "tiles.h"

namespace topsign {
namespace {

constexpr int64_t kPlaneTile = 4096;                     // rows of the pool
constexpr int64_t kTiledGroup = 512;                     // codes that share a tile while it is in the cache
constexpr int64_t kTiledTurn = 32;                       // codes that are read before they are counted
constexpr int64_t kTiledPlaneRows = 2 * kPlaneTile + 1;  // rows of a tile's table; the last is zero, for padding

// Adds counts of n planes to those of n_planes, modulo their size.
template <class P>
void add_planes(const P* counts, int n, int n_planes, P* planes) {
    P carry{};
    for (int p = 0; p < n; ++p) {
        const P differ = planes[p] ^ counts[p], both = planes[p] & counts[p];
        planes[p] = differ ^ carry;
        carry = both | (differ & carry);
    }
    carry_up(carry, n_planes - n, planes + n);
}

// Counts the rows of a few codes in one tile, 32 rows of each in turn, with as many planes as the longest needs.
template <class Isa, int Side, int Planes>
void count_tile(const uint8_t* table, const uint16_t* rows, int64_t stride, const int64_t* lengths, int64_t n_codes,
                int n_planes, Plane<Isa>* planes) {
    const int64_t longest = *std::max_element(lengths, lengths + n_codes);
    for (int64_t i = 0; i < ceil_div(n_codes, Side) * n_planes; ++i) planes[i] = Plane<Isa>{};
    for (int64_t j = 0; j < longest; j += 32)
        for (int64_t c = 0; c < n_codes; c += Side)
            if (j < lengths[c])
                add_32_rows<Isa, Side, Planes>(table, rows + c * stride + j, stride, n_planes,
                                               planes + c / Side * n_planes);
}

// Reads the rows of Side codes in one tile, padded to the same multiple of 32; returns their number.
template <class Isa, int Side>
int64_t read_side(TileReader<Isa, kPlaneTile>& reader, int64_t slot, int64_t n_codes, int64_t tile, uint16_t* rows) {
    using Reader = TileReader<Isa, kPlaneTile>;
    constexpr auto kNoOnes = uint16_t(Reader::kTableRows << PlaneRow<Isa, Side>::kShift);
    int64_t n[Side], length = 0;
    for (int s = 0; s < Side; ++s) {
        n[s] = slot + s < n_codes ? reader.read(slot + s, tile, rows + s * Reader::kRoom) : 0;
        length = std::max(length, ceil_div(n[s], 32) * 32);
    }
    for (int s = 0; s < Side; ++s)
        std::fill(rows + s * Reader::kRoom + n[s], rows + s * Reader::kRoom + length, kNoOnes);
    return length;
}

template <class Isa, int Side, class Collector>
void scan_plane_tiles(const ts_codes& codes, const ts_signs& queries, const uint8_t* table, int64_t begin, int64_t end,
                      Collector* best) {
    using Reader = TileReader<Isa, kPlaneTile>;
    constexpr int64_t kTileBytes = kTiledPlaneRows * Isa::kBytes / Side;
    constexpr int kShort = 10, kLong = 13;  // planes for up to 1023 rows of a tile, or for all of them
    const Layout layout(codes.layout);
    PlaneBounds<Isa, Side, Collector> bounds(layout.n_bits, queries.count, best);
    const int n_planes = bounds.n_planes();
    std::vector<uint16_t> rows(kTiledTurn * Reader::kRoom);
    std::vector<PlaneMemory<Isa::kBytes>> memory((kTiledGroup * n_planes + kTiledTurn * kLong) / Side);
    auto* const planes = reinterpret_cast<Plane<Isa>*>(memory.data());
    Plane<Isa>* const of_tile = planes + kTiledGroup / Side * n_planes;
    Reader reader(layout, codes.data, codes.count, kTiledGroup, PlaneRow<Isa, Side>::kShift);
    for (int64_t next = begin; next < end;) {
        bounds.refresh();
        int64_t group[kTiledGroup], n_codes = 0;
        for (; next < end && n_codes < kTiledGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.start(n_codes, next);
            group[n_codes++] = next;
        }
        for (int64_t i = 0; i < ceil_div(n_codes, Side) * n_planes; ++i) planes[i] = Plane<Isa>{};
        for (int64_t tile = 0; tile < Reader::n_tiles(layout); ++tile)
            for (int64_t first = 0; first < n_codes; first += kTiledTurn) {
                const int64_t n = std::min(kTiledTurn, n_codes - first);
                int64_t lengths[kTiledTurn] = {}, longest = 0;
                for (int64_t c = 0; c < n; c += Side) {
                    lengths[c] = read_side<Isa, Side>(reader, first + c, n_codes, tile,
                                                      rows.data() + c * Reader::kRoom + Reader::kBefore);
                    longest = std::max(longest, lengths[c]);
                }
                const int n_of_tile = longest < 1024 ? kShort : kLong;
                (longest < 1024 ? count_tile<Isa, Side, kShort>
                                : count_tile<Isa, Side, 0>)(table + tile * kTileBytes, rows.data() + Reader::kBefore,
                                                            Reader::kRoom, lengths, n, n_of_tile, of_tile);
                for (int64_t c = 0; c < n; c += Side)
                    add_planes(of_tile + c / Side * n_of_tile, std::min(n_of_tile, n_planes), n_planes,
                               planes + (first + c) / Side * n_planes);
            }
        bounds.offer(planes, group, n_codes);
    }
}

template <class Isa, int Side, class Collector>
Parts<Collector> search_plane_tiles(int n_threads, const CodeRanges& ranges, const ts_signs& queries,
                                    const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    Table table(ceil_div(layout.n_pool, kPlaneTile) * kTiledPlaneRows * (Isa::kBytes / Side));
    fill_planes<Isa, Side>(n_threads, layout, queries, table, [](int64_t row) { return row + row / (2 * kPlaneTile); });
    return scan_parts(
        n_threads, ranges, scan_cost(layout, queries.count), empty,
        [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
            scan_plane_tiles<Isa, Side>(codes, queries, table.bytes(), begin, end, best);
        },
        kTiledGroup);
}

}  // namespace
}  // namespace topsign
