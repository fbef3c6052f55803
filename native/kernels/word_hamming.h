// Mismatches of one or a few queries with codes of the compact layout, for instruction sets with
// 16-entry byte look-ups.
//
// Locations with the same high part share a word of the query. Eight unary bits at a time select how words are spread
// over the locations; the low parts then select bits, one register of locations at a time.
#pragma once

#include "block_hamming.h"

namespace topsign {
namespace {

// Shuffles of eight words for every value of eight unary bits: each one takes the word numbered by the zeros before it.
struct WordsOfOnes {
    alignas(16) uint8_t order[256][16] = {};
    constexpr WordsOfOnes() {
        for (int byte = 0; byte < 256; ++byte)
            for (int n = 0; n < kOnesOfByte.count[byte]; ++n)
                for (int half = 0; half < 2; ++half)
                    order[byte][2 * n + half] = uint8_t(2 * (kOnesOfByte.place[byte][n] - n) + half);
    }
};
constexpr WordsOfOnes kWordsOfOnes;

// One in the first n lanes, zero in the others.
template <class V>
V first_lanes(int64_t n) {
    V lanes{};
    for (int i = 0; i < kLanes<V>; ++i) lanes[i] = i < n ? 1 : 0;
    return lanes;
}

template <class Isa>
class WordCounter {
   public:
    using V = Vec<uint8_t, Isa::kBytes>;

    explicit WordCounter(const Layout& layout)
        : layout_(layout),
          high_bytes_(ceil_div(layout.high_size(), 8)),
          low_spread_(layout.low_bits),
          words_(8 * high_bytes_ + kSpare) {}

    static bool serves(const Layout& layout) { return layout.low_bits >= 1 && layout.low_bits <= 4; }

    using Table = std::vector<uint16_t>;

    // The words of a query, padded for reads past the last.
    static Table table(const Layout& layout, const uint8_t* query) {
        Table words(8 * ceil_div(layout.high_size(), 8) + kSpare);
        const int64_t width = int64_t(1) << layout.low_bits, bytes = ceil_div(layout.n_pool, 8);
        for (int64_t row = 0; row < layout.n_pool; row += width) {
            uint16_t word = query[row / 8];
            if (row / 8 + 1 < bytes) word = uint16_t(word | query[row / 8 + 1] << 8);
            words[row >> layout.low_bits] = uint16_t((word >> row % 8) & ((1u << width) - 1));
        }
        return words;
    }

    // Returns false if the code has too few ones.
    bool count(const uint8_t* code, const Table& table, int32_t& total) {
        if (spread(code + layout_.sign_bytes() + layout_.low_bytes(), table.data()) < layout_.n_bits) return false;
        const uint8_t* lows = code + layout_.sign_bytes();
        total = layout_.low_bits == 4
                    ? count_spread(code, [&](int64_t i) { return Isa::halves_of_bytes(lows + i / 2); })
                    : count_spread(code, [&, low_spread = low_spread_](int64_t i) {
                          Vec<uint64_t, Isa::kBytes / 8> windows{};
                          for (int w = 0; w < Isa::kBytes / 8; ++w)
                              windows[w] =
                                  Isa::spread(load<uint64_t>(lows + (i / 8 + w) * layout_.low_bits), low_spread);
                          return cast<V>(windows);
                      });
        return true;
    }

   private:
    static constexpr int64_t kSpare = 64;

    // Writes one word per set bit and returns their number; words past the ones of a byte are overwritten.
    int64_t spread(const uint8_t* highs, const uint16_t* table) {
        using Words = Vec<uint8_t, 16>;
        uint16_t* const words = words_.data();
        const int64_t high_bytes = high_bytes_;
        int64_t ones = 0, minus_ones = 0, at = 0;
        const auto step = [&](int b) {
            const int64_t byte = highs[at + b], n = Isa::count_byte(uint8_t(byte));
            const Words eight = load<Words>(table + 8 * b + minus_ones);
            store(words + ones, Isa::look_up_16(eight, load<Words>(kWordsOfOnes.order[byte])));
            ones += n;
            minus_ones -= n;
        };
        for (; at + 8 <= high_bytes; at += 8, table += 64)
            for (int b = 0; b < 8; ++b) step(b);
        for (; at < high_bytes; ++at, table += 8) step(0);
        return ones;
    }

    template <class Places>
    int32_t count_spread(const uint8_t* code, const Places& places) const {
        const uint16_t* const words = words_.data();
        const auto differing = [&](int64_t i) {
            return Isa::bits_of_words(words + i, places(i)) ^ Isa::spread_bits(code + i / 8);
        };
        const int64_t n_bits = layout_.n_bits, whole = n_bits / Isa::kBytes * Isa::kBytes;
        int32_t total = 0;
        int64_t i = 0;
        while (i < whole) {
            V counted{};  // a lane counts up to 255
            for (const int64_t end = std::min<int64_t>(whole, i + 255 * Isa::kBytes); i < end; i += Isa::kBytes)
                counted = counted - differing(i);
            total += Isa::sum_bytes(counted);
        }
        return i < n_bits ? total + Isa::sum_bytes(differing(i) & first_lanes<V>(n_bits - i)) : total;
    }

    const Layout layout_;
    const int64_t high_bytes_;
    const Spread low_spread_;
    std::vector<uint16_t> words_;
};

// Tables as a counter defines them; its count() returns false for invalid codes. Scans code by code and query by query.
template <class Isa, class Counter>
class CounterTables {
   public:
    static constexpr int64_t kGroup = 1;

    CounterTables(int n_threads, const Layout& layout, const ts_signs& queries)
        : layout_(layout), queries_(queries), tables_(queries.count) {
        parallel_for(n_threads, queries.count, double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q) tables_[q] = Counter::table(layout_, signs(q));
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 50 * n_queries); }

    auto start() const {
        return [this, counter = Counter(layout_)](const ts_codes& codes, int64_t begin, int64_t end,
                                                  const QueryList& queries, auto* best) mutable {
            CodeReader reader(layout_, codes.data, codes.count);
            for (int64_t i = begin; i < end; ++i) {
                if (!is_alive(codes.alive, i)) continue;
                const uint8_t* code = reader(i);
                Isa::prefetch(code + 4096);
                for (int64_t q = 0; q < queries.count; ++q) {
                    int32_t count;
                    if (!counter.count(code, tables_[queries[q]], count))
                        count = count_plainly(layout_, code, signs(queries[q]));
                    if (count < best[q].bound()) best[q].offer(count, i);
                }
            }
        };
    }

   private:
    const uint8_t* signs(int64_t q) const { return queries_.bits + q * ceil_div(layout_.n_pool, 8); }

    const Layout layout_;
    const ts_signs queries_;
    std::vector<typename Counter::Table> tables_;
};

}  // namespace
}  // namespace topsign
