// Mismatches of one or a few queries: locations are looked up in each query's own table.
#pragma once

#include "../core/collect.h"
#include "rows.h"
#include "sums.h"

namespace topsign {
namespace {

// One code after another, one query after another, a table of a byte for each row: 1 where the signs differ.
template <class Isa, class Row, class Collector>
void scan_each(const ts_codes& codes, const std::vector<uint8_t>& table, int64_t n_queries, int64_t begin, int64_t end,
               Collector* best) {
    const Layout layout(codes.layout);
    const int64_t n_bits = layout.n_bits, stride = table_rows(layout);
    RowReader<Isa, Row> reader(layout, codes.data, codes.count);
    std::vector<Row> rows(n_bits + reader.kSpare);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        reader.read(i, rows.data());
        for (int64_t q = 0; q < n_queries; ++q) {
            const uint8_t* differs = table.data() + q * stride;
            int32_t sums[4] = {0, 0, 0, 0};
            int64_t j = 0;
            for (; j + 4 <= n_bits; j += 4)
                for (int s = 0; s < 4; ++s) sums[s] += differs[rows[j + s]];
            for (; j < n_bits; ++j) sums[0] += differs[rows[j]];
            const int32_t count = sums[0] + sums[1] + sums[2] + sums[3];
            if (count < best[q].bound()) best[q].offer(count, i);
        }
    }
}

inline std::vector<uint8_t> byte_table(const Layout& layout, const ts_signs& queries) {
    const int64_t stride = table_rows(layout), bytes = ceil_div(layout.n_pool, 8);
    std::vector<uint8_t> table(queries.count * stride);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location)
            for (int positive = 0; positive < 2; ++positive)
                table[q * stride + table_row(layout, location, positive)] =
                    get_bit(queries.bits + q * bytes, location) != positive;
    return table;
}

template <class Isa, class Collector>
Parts<Collector> search_each(int n_threads, const ts_codes& codes, const ts_signs& queries,
                             const std::vector<Collector>& empty) {
    const std::vector<uint8_t> table = byte_table(codes.layout, queries);
    return scan_parts(n_threads, codes.count, scan_cost(codes.layout, 80 * queries.count), empty,
                      [&](int64_t begin, int64_t end, Collector* best) {
                          if (narrow_rows(codes.layout, 0))
                              scan_each<Isa, uint16_t>(codes, table, queries.count, begin, end, best);
                          else
                              scan_each<Isa, uint32_t>(codes, table, queries.count, begin, end, best);
                      });
}

// Straight from the bytes of the fast layout, for sets that look bytes up in tables of sixteen: a register holds
// sixteen locations of each of kBytes / 16 blocks. A first look-up fetches each location's byte of the query, a second
// one the mask of its bit, and the sign of the comparison, flipped by the code's own, is a mismatch.
template <class Isa>
struct BlockCounter {
    static constexpr int kParts = Isa::kBytes / 16;
    using V = Vec<uint8_t, Isa::kBytes>;
    using Tally = typename Isa::Tally;

    // Adds up to sixteen locations from each of `at`, as many as `counts`.
    template <int N>
    static TOPSIGN_INLINE void add(const uint8_t* const (&at)[kParts], const uint8_t* counts,
                                   const uint8_t* const* query, int64_t offset, Tally* tallies) {
        const V bytes = Isa::load_parts(at);
        const auto present = Isa::first_of_parts(counts);
        const V mask = Isa::look_up(Isa::bit_masks(), Isa::bit_numbers(bytes)), place = bytes & splat<V>(15);
        for (int q = 0; q < N; ++q) {
            tallies[q].add(Isa::look_up(load<V>(query[q] + offset), place), mask, bytes, present);
        }
    }

    // Blocks of which one has more than sixteen locations, or the last ones; kept out of the way of the registers.
    template <int N>
    static TOPSIGN_OUTLINE const uint8_t* add_some(const uint8_t* bytes, const uint8_t* counts, int64_t n_blocks,
                                                   const uint8_t* const* query, int64_t offset, int32_t* totals) {
        for (int64_t block = 0; block < n_blocks; block += kParts) {
            const uint8_t* at[kParts];
            int left[kParts], most = 0;
            for (int b = 0; b < kParts; ++b) {
                left[b] = block + b < n_blocks ? counts[block + b] : 0;
                most = std::max(most, left[b]);
                at[b] = bytes;
                bytes += left[b];
            }
            for (; most > 0; most -= 16) {
                uint8_t step[kParts];
                for (int b = 0; b < kParts; ++b) step[b] = uint8_t(std::min(left[b], 16));
                Tally tallies[N];
                add<N>(at, step, query, offset + block * 16, tallies);
                for (int q = 0; q < N; ++q) totals[q] += tallies[q].total();
                for (int b = 0; b < kParts; ++b) {
                    if (left[b] > 16) at[b] += 16;  // a block that is done stays where it is, inside the code
                    left[b] = std::max(0, left[b] - 16);
                }
            }
        }
        return bytes;
    }

    template <int N>
    static TOPSIGN_INLINE void count(const uint8_t* code, int64_t n_blocks, const uint8_t* const* query,
                                     int32_t* totals) {
        const uint8_t* bytes = code + n_blocks;
        for (int q = 0; q < N; ++q) totals[q] = 0;
        int64_t block = 0;
        while (block + 8 <= n_blocks) {
            Tally tallies[N];
            for (const int64_t end = std::min(n_blocks / 8 * 8, block + Tally::kMost); block < end; block += 8) {
                const uint64_t counts = load<uint64_t>(code + block);
                if (any_above_16(counts)) {
                    bytes = add_some<N>(bytes, code + block, 8, query, block * 16, totals);
                    continue;
                }
                for (int64_t b = block; b < block + 8; b += kParts) {
                    const uint8_t* at[kParts];
                    for (int part = 0; part < kParts; ++part) {
                        at[part] = bytes;
                        bytes += code[b + part];
                    }
                    add<N>(at, code + b, query, b * 16, tallies);
                }
            }
            for (int q = 0; q < N; ++q) totals[q] += tallies[q].total();
        }
        if (block < n_blocks) add_some<N>(bytes, code + block, n_blocks - block, query, block * 16, totals);
    }
};

template <class Isa, class Collector>
void scan_blocks(const ts_codes& codes, const uint8_t* table, int64_t query_bytes, int64_t n_queries, int64_t begin,
                 int64_t end, Collector* best) {
    using Counter = BlockCounter<Isa>;
    const Layout layout(codes.layout);
    const int64_t n_blocks = layout.n_blocks();
    const int64_t words = ceil_div(layout.n_pool, 32);
    CodeReader reader(layout, codes.data, codes.count);
    std::vector<uint32_t> kept;
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = reader(i);
        Isa::prefetch(code + 4096);
        const bool sound = sum_bytes(code, n_blocks) <= layout.n_bits;
        for (int64_t q = 0; q < n_queries;) {
            const uint8_t* query[4];
            int32_t counts[4];
            const int n = n_queries - q >= 4 ? 4 : 1;
            for (int s = 0; s < n; ++s) query[s] = table + (q + s) * query_bytes;
            if (!sound) {  // counts that lead out of the code
                kept.resize(layout.n_bits);
                unpack_code(layout, code, kept.data());
                for (int s = 0; s < n; ++s) {
                    std::vector<uint32_t> bits(words);
                    std::memcpy(bits.data(), query[s], ceil_div(layout.n_pool, 8));
                    counts[s] = count_mismatches(kept.data(), 0, layout.n_bits, bits.data());
                }
            } else {
                n == 4 ? Counter::template count<4>(code, n_blocks, query, counts)
                       : Counter::template count<1>(code, n_blocks, query, counts);
            }
            for (int s = 0; s < n; ++s, ++q)
                if (counts[s] < best[q].bound()) best[q].offer(counts[s], i);
        }
    }
}

template <class Isa, class Collector>
Parts<Collector> search_blocks(int n_threads, const ts_codes& codes, const ts_signs& queries,
                               const std::vector<Collector>& empty) {
    const Layout layout(codes.layout);
    constexpr int64_t kParts = BlockCounter<Isa>::kParts;
    const int64_t bytes = ceil_div(layout.n_pool, 8), query_bytes = ceil_div(layout.n_blocks(), kParts) * kParts * 16;
    std::vector<uint8_t> table(queries.count * query_bytes);
    for (int64_t q = 0; q < queries.count; ++q)
        std::memcpy(table.data() + q * query_bytes, queries.bits + q * bytes, bytes);
    return scan_parts(n_threads, codes.count, scan_cost(codes.layout, 25 * queries.count), empty,
                      [&](int64_t begin, int64_t end, Collector* best) {
                          scan_blocks<Isa>(codes, table.data(), query_bytes, queries.count, begin, end, best);
                      });
}

}  // namespace
}  // namespace topsign
