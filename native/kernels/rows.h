// Conversion of codes to table rows, one per signed location (see core/layout.h).
//
// Bytes of codes are not trusted: codes with inconsistent counts are read by the scalar reader, and row numbers are
// limited to the table.
#pragma once

#include "../core/layout.h"
#include "../core/ones.h"
#include "vec.h"

namespace topsign {
namespace {

// Spreads eight adjacent fields of up to 8 bits to one byte each, in three steps of shifts and masks.
struct Spread {
    int width;
    uint64_t low[3], high[3];

    explicit Spread(int64_t bits) : width(int(std::max<int64_t>(0, std::min<int64_t>(bits, 8)))) {
        for (int step = 0; step < 3; ++step) {
            const int fields = 4 >> step, period = 64 >> step;
            low[step] = high[step] = 0;
            for (int at = 0; at < 64; at += period) {
                low[step] |= ((uint64_t(1) << fields * width) - 1) << at;
                high[step] |= ((uint64_t(1) << fields * width) - 1) << fields * width << at;
            }
        }
        if (width == 8) low[0] = 0xffffffffu, high[0] = uint64_t(0xffffffffu) << 32;
    }

    uint64_t mask() const { return ((uint64_t(1) << width) - 1) * 0x0101010101010101u; }

    uint64_t operator()(uint64_t fields) const {
        fields = (fields & low[0]) | (fields & high[0]) << (32 - 4 * width);
        fields = (fields & low[1]) | (fields & high[1]) << (16 - 2 * width);
        return (fields & low[2]) | (fields & high[2]) << (8 - width);
    }
};

// Reads the table rows of codes, times 2^shift, as uint16_t or uint32_t. Up to kSpare rows past n_bits are
// overwritten.
template <class Isa, class Row>
class RowReader {
   public:
    static constexpr int64_t kSpare = 32;

    RowReader(const Layout& layout, const uint8_t* codes, int64_t n_codes, int shift = 0)
        : layout_(layout),
          code_(layout, codes, n_codes),
          spread_(layout.low_bits),
          shift_(shift),
          limit_(Row((table_rows(layout) - 1) << shift)) {}

    void read(int64_t i, Row* rows) {
        const uint8_t* code = code_(i);
        if (!(layout_.fast() ? read_fast(code, rows) : read_compact(code, rows))) read_plainly(code, rows);
    }

   private:
    static constexpr int kWidth = Isa::kBytes < 32 ? Isa::kBytes : 32;
    static constexpr int kLanesOfRow = kWidth / int(sizeof(Row));
    using V = Vec<Row, kLanesOfRow>;

    bool read_fast(const uint8_t* code, Row* rows) const {
        if constexpr (sizeof(Row) == 2)
            return read_fast_narrow(code, rows);
        else
            return read_fast_wide(code, rows);
    }

    // Converts sixteen bytes of a block at a time; rows past its count are overwritten by the next block.
    bool read_fast_wide(const uint8_t* code, Row* rows) const {
        const int64_t n_blocks = layout_.n_blocks();
        const int shift = shift_;
        const uint8_t* bytes = code + n_blocks;
        Row* const end = rows + layout_.n_bits;
        for (int64_t block = 0; block < n_blocks; ++block) {
            const int count = code[block];
            if (count > end - rows) return false;
            const V base = splat<V>(Row(block * 256));
            int t = 0;
            do {  // without a branch for the usual count of at most 16
                for (int at = 0; at < 16; at += kLanesOfRow)
                    store(rows + t + at, (base + widen(bytes + t + at)) << shift);
                t += 16;
            } while (t < count);
            bytes += count;
            rows += count;
        }
        return rows == end;
    }

    // A 16-bit row is the block number followed by the location byte. Block numbers are written first, sixteen at a
    // time, then interleaved with the bytes.
    bool read_fast_narrow(const uint8_t* code, Row* rows) const {
        using Bytes = Vec<uint8_t, 16>;
        const int64_t n_bits = layout_.n_bits, n_blocks = layout_.n_blocks();
        auto* const numbers = reinterpret_cast<uint8_t*>(rows + n_bits + kSpare) - (n_bits + kSpare);  // the room's end
        uint8_t* at = numbers;
        uint8_t* const end = numbers + n_bits;
        Bytes number{};
        const Bytes one = splat<Bytes>(1);
        for (int64_t block = 0; block < n_blocks; ++block) {
            const int count = code[block];
            if (count > end - at) return false;
            store(at, number);
            for (int t = 16; t < count; t += 16) store(at + t, number);
            number = number + one;
            at += count;
        }
        if (at != end) return false;
        const uint8_t* bytes = code + n_blocks;
        const int shift = shift_;
        for (int64_t j = 0; j < n_bits; j += kLanesOfRow)
            store(rows + j, (widen(bytes + j) | widen(numbers + j) << 8) << shift);
        return true;
    }

    static TOPSIGN_INLINE V widen(const uint8_t* bytes) {
        return Isa::template widen<V>(load<Vec<uint8_t, kLanesOfRow>>(bytes));
    }

    // Elias-Fano: positions of ones give the high parts; eight low parts are spread from one 64-bit window.
    bool read_compact(const uint8_t* code, Row* rows) const {
        const uint8_t* lows = code + layout_.sign_bytes();
        const uint8_t* highs = lows + layout_.low_bytes();
        Row* out = rows;
        Row* const end = rows + layout_.n_bits;
        constexpr int kPart = kLanesOfRow < 8 ? kLanesOfRow : 8;
        using Part = Vec<Row, kPart>;
        const int64_t high_bytes = ceil_div(layout_.high_size(), 8);
        Part base{};
        for (int64_t at = 0; at < high_bytes && out < end; ++at) {  // entries past the ones of a byte are overwritten
            const uint8_t byte = highs[at];
            for (int part = 0; part < 8; part += kPart)
                store(out + part,
                      Isa::template widen<Part>(load<Vec<uint8_t, kPart>>(kOnesOfByte.place[byte] + part)) + base);
            out += Isa::count_byte(byte);
            base = base + splat<Part>(8);
        }
        if (out < end) return false;
        layout_.low_bits <= 8 ? join_short(code, lows, rows) : join_long(code, lows, rows);
        return true;
    }

    // Combines positions of ones, low parts and signs to rows.
    void join_short(const uint8_t* code, const uint8_t* lows, Row* rows) const {
        constexpr int kWindows = kLanesOfRow < 8 ? 1 : kLanesOfRow / 8, kParts = kLanesOfRow < 8 ? 8 / kLanesOfRow : 1;
        using Bytes = Vec<uint8_t, kLanesOfRow>;
        const int64_t n_bits = layout_.n_bits, low_bits = layout_.low_bits;
        const int by_low = 1 + shift_, by_high = int(low_bits) + by_low;
        const Spread spread = spread_;
        const V positive_row = splat<V>(Row(1 << shift_)), limit = splat<V>(limit_), bit = powers_of_two<V>();
        const V step = splat<V>(Row(layout_.bitmap() ? 0 : kLanesOfRow));
        V before = layout_.bitmap() ? V{} : count_up<V>();  // ones before each one
        for (int64_t i = 0; i < n_bits; i += 8 * kWindows) {
            Vec<uint64_t, kWindows> windows;
            for (int w = 0; w < kWindows; ++w)
                windows[w] = Isa::spread(load<uint64_t>(lows + (i / 8 + w) * low_bits), spread);
            uint32_t signs = 0;
            std::memcpy(&signs, code + i / 8, kWindows);
            for (int part = 0; part < kParts; ++part) {
                Row* const at = rows + i + part * kLanesOfRow;
                Bytes bytes;
                std::memcpy(&bytes, reinterpret_cast<const uint8_t*>(&windows) + part * kLanesOfRow, sizeof bytes);
                const V low = Isa::template widen<V>(bytes), high = load<V>(at) - before;
                const V sign = cast<V>((splat<V>(Row(signs >> part * kLanesOfRow)) & bit) == bit) & positive_row;
                store(at, min_of(high << by_high | low << by_low | sign, limit));
                before = before + step;
            }
        }
    }

    void join_long(const uint8_t* code, const uint8_t* lows, Row* rows) const {
        const int64_t low_bits = layout_.low_bits;
        const int64_t n_bits = layout_.n_bits;
        const int shift = shift_;
        const uint64_t low_mask = (uint64_t(1) << low_bits) - 1, limit = limit_;
        for (int64_t i = 0; i < n_bits; ++i) {
            const uint64_t low = load<uint64_t>(lows + (i * low_bits >> 3)) >> (i * low_bits & 7) & low_mask;
            const uint64_t row = (uint64_t(rows[i] - Row(i)) << low_bits | low) << 1 | uint64_t(get_bit(code, i));
            rows[i] = Row(std::min(row << shift, limit));
        }
    }

    TOPSIGN_OUTLINE void read_plainly(const uint8_t* code, Row* rows) const {
        std::vector<uint32_t> kept(layout_.n_bits);
        unpack_code(layout_, code, kept.data());
        for (int64_t i = 0; i < layout_.n_bits; ++i)
            rows[i] = Row(table_row(layout_, kept[i] & ~kNegative, !(kept[i] & kNegative)) << shift_);
    }

    const Layout layout_;
    CodeReader code_;
    const Spread spread_;
    const int shift_;
    const Row limit_;
};

// Reads the kept rows of codes like unpack_code, through table rows.
template <class Isa>
class KeptReader {
   public:
    KeptReader(const Layout& layout, const uint8_t* codes, int64_t n_codes)
        : layout_(layout), rows_(layout, codes, n_codes), kept_(layout.n_bits + rows_.kSpare) {}

    // Valid until the next call.
    const uint32_t* operator()(int64_t i) {
        rows_.read(i, kept_.data());
        uint32_t* kept = kept_.data();
        const uint32_t last = uint32_t(layout_.n_pool - 1);
        const int64_t n_bits = layout_.n_bits;
        if (layout_.fast())
            for (int64_t j = 0; j < n_bits; ++j) {
                const uint32_t row = kept[j], location = (row >> 8) << 7 | (row & 15) << 3 | (row >> 4 & 7);
                kept[j] = std::min(location, last) | ((~row & 128) << 24);
            }
        else
            for (int64_t j = 0; j < n_bits; ++j) kept[j] = kept[j] >> 1 | ~kept[j] << 31;
        return kept;
    }

   private:
    const Layout layout_;
    RowReader<Isa, uint32_t> rows_;
    std::vector<uint32_t> kept_;
};

}  // namespace
}  // namespace topsign
