// Reader of codes of large pools, one tile of the pool at a time, so that the tile's part of a table stays in the
// second-level cache for a group of codes. Locations ascend, so a cursor per code marks the start of the next tile.
#pragma once

#include "rows.h"

namespace topsign {
namespace {

// Number of rows from which a table exceeds the caches, and codes are dense enough to have several locations in each
// tile.
inline bool read_by_tiles(const Layout& layout) {
    return layout.n_pool >= 32768 && layout.n_bits >= layout.n_pool / 64 && layout.low_bits != 0 &&
           layout.low_bits <= 8 && !layout.signs();
}

// Number of queries up to which tables of one block after another are as fast as tiles for large pools.
constexpr int64_t kFewOfLargePools = 6;

// Reads the locations of one tile of the pool, as table rows counted from the tile's first, times 2^shift.
template <class Isa, int64_t kTileRows>
class TileReader {
   public:
    static constexpr int64_t kBefore = 8,
                             kRoom = kBefore + kTileRows + 64;  // rows written before the first, and size of the buffer
    static constexpr uint16_t kTableRows = 2 * kTileRows;

    TileReader(const Layout& layout, const uint8_t* codes, int64_t n_codes, int64_t group, int shift)
        : layout_(layout), code_(layout, codes, n_codes), cursors_(group), spread_(layout.low_bits), shift_(shift) {}

    static int64_t n_tiles(const Layout& layout) { return ceil_div(layout.n_pool, kTileRows); }

    void start(int64_t slot, int64_t i) { cursors_[slot] = {code_(i), 0}; }

    // Returns the number of rows; an invalid code has none from then on.
    int64_t read(int64_t slot, int64_t tile, uint16_t* rows) {
        Cursor& cursor = cursors_[slot];
        if (cursor.kept > layout_.n_bits) return 0;
        const int64_t n = layout_.fast() ? read_fast(cursor, tile, rows) : read_compact(cursor, tile, rows);
        cursor.kept += n < 0 ? layout_.n_bits + 1 : n;
        return std::max<int64_t>(n, 0);
    }

   private:
    struct Cursor {
        const uint8_t* code;
        int64_t kept;  // locations before the tile; above n_bits in an invalid code
    };
    static constexpr int kLanesOfRow = (Isa::kBytes < 32 ? Isa::kBytes : 32) / 2;
    using V = Vec<uint16_t, kLanesOfRow>;
    using Bytes = Vec<uint8_t, kLanesOfRow>;

    int64_t read_fast(const Cursor& cursor, int64_t tile, uint16_t* rows) const {
        constexpr int64_t kBlocks = kTileRows / kBlockRows;
        const uint8_t* counts = cursor.code + tile * kBlocks;
        const int64_t n_blocks = std::min(kBlocks, layout_.n_blocks() - tile * kBlocks);
        const int64_t n = sum_bytes(counts, n_blocks);
        if (n > std::min(kTileRows, layout_.n_bits - cursor.kept)) return -1;
        const uint8_t* bytes = cursor.code + layout_.n_blocks() + cursor.kept;
        const int shift = shift_;
        for (int64_t block = 0; block < n_blocks; ++block) {
            const int64_t count = counts[block];
            const V base = splat<V>(uint16_t(block * 256));
            int64_t t = 0;
            do {  // without a branch for the usual count of at most 16
                for (int at = 0; at < 16; at += kLanesOfRow)
                    store(rows + t + at, (base + Isa::template widen<V>(load<Bytes>(bytes + t + at))) << shift);
                t += 16;
            } while (t < count);
            bytes += count;
            rows += count;
        }
        prefetch(bytes, 2 * n);
        prefetch(counts + n_blocks, kBlocks);
        return n;
    }

    // Positions of ones give high parts as in RowReader, starting at the first bit of the tile.
    int64_t read_compact(const Cursor& cursor, int64_t tile, uint16_t* rows) const {
        using Part = Vec<uint16_t, 8>;
        const int64_t high_parts = kTileRows >> layout_.low_bits, from = tile * high_parts + cursor.kept;
        const int64_t high_bytes = ceil_div(layout_.high_size(), 8), most = layout_.n_bits - cursor.kept;
        const uint8_t* highs = cursor.code + layout_.sign_bytes() + layout_.low_bytes();
        uint16_t* out = rows;
        uint16_t* const limit = rows + std::min(kTileRows + 8, most);
        int64_t at = from >> 3, bits = -(from & 7);
        if (at >= high_bytes) return most == 0 ? 0 : -1;
        Part base = splat<Part>(uint16_t(bits));
        uint8_t byte = uint8_t(highs[at] & 255 << (from & 7));
        while (true) {
            store(out, Isa::template widen<Part>(load<Vec<uint8_t, 8>>(kOnesOfByte.place[byte])) + base);
            out += Isa::count_byte(byte);
            bits += 8;
            if (out > limit) return -1;
            if (bits - (out - rows) >= high_parts || ++at >= high_bytes) break;
            byte = highs[at];
            base = base + splat<Part>(8);
        }
        while (out > rows && out[-1] - (out - 1 - rows) >= high_parts) --out;  // the next tile's
        join(cursor, rows, out - rows);
        prefetch(highs + at, out - rows);
        return out - rows;
    }

    // Combines positions, low parts and signs to rows; low parts and signs are read from a byte boundary.
    void join(const Cursor& cursor, uint16_t* rows, int64_t n) const {
        const int64_t first = cursor.kept & 7;
        rows -= first;
        const int64_t low_bits = layout_.low_bits, byte = cursor.kept >> 3;
        const uint8_t* lows = cursor.code + layout_.sign_bytes() + byte * low_bits;
        const uint8_t* signs = cursor.code + byte;
        const int by_low = 1 + shift_, by_high = int(low_bits) + by_low;
        const Spread spread = spread_;
        const V positive_row = splat<V>(uint16_t(1 << shift_)), bit = powers_of_two<V>();
        const V step = splat<V>(uint16_t(kLanesOfRow));
        V before = count_up<V>() - splat<V>(uint16_t(first));
        for (int64_t i = 0; i < first + n; i += kLanesOfRow) {
            Vec<uint64_t, kLanesOfRow / 8> windows{};
            for (int w = 0; w < kLanesOfRow / 8; ++w)
                windows[w] = Isa::spread(load<uint64_t>(lows + (i / 8 + w) * low_bits), spread);
            uint16_t sign_bits = 0;
            std::memcpy(&sign_bits, signs + i / 8, kLanesOfRow / 8);
            const V low = Isa::template widen<V>(cast<Bytes>(windows)), high = load<V>(rows + i) - before;
            const V sign = cast<V>((splat<V>(sign_bits) & bit) == bit) & positive_row;
            store(rows + i, high << by_high | low << by_low | sign);
            before = before + step;
        }
        prefetch(lows + (first + n) * low_bits / 8, n * low_bits / 8);
        prefetch(signs + (first + n) / 8, n / 8);
    }

    // Prefetch for the next tile while other codes are counted.
    static void prefetch(const uint8_t* bytes, int64_t n) {
        for (int64_t at = 0; at <= n; at += 64) Isa::prefetch(bytes + at);
    }

    const Layout layout_;
    CodeReader code_;
    std::vector<Cursor> cursors_;
    const Spread spread_;
    const int shift_;
};

}  // namespace
}  // namespace topsign
