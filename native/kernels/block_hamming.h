// Mismatches of one or a few queries with codes of the fast layout, for instruction sets with 16-entry byte look-ups.
#pragma once

#include "../core/collect.h"
#include "blocks.h"
#include "rows.h"
#include "sums.h"

namespace topsign {
namespace {

// Repeats sixteen bytes across the register.
template <class V>
TOPSIGN_INLINE V repeated(uint64_t low, uint64_t high) {
    Vec<uint64_t, sizeof(V) / 8> words{};
    for (int i = 0; i < int(sizeof(V) / 8); ++i) words[i] = i % 2 ? high : low;
    return cast<V>(words);
}

constexpr uint64_t kBitMasks = 0x8040201008040201u;

// Scalar count for invalid codes, whose counts exceed their length.
inline int32_t count_plainly(const Layout& layout, const uint8_t* code, const uint8_t* query) {
    std::vector<uint32_t> kept(layout.n_bits), bits(ceil_div(layout.n_pool, 32));
    unpack_code(layout, code, kept.data());
    std::memcpy(bits.data(), query, ceil_div(layout.n_pool, 8));
    return count_mismatches(kept.data(), 0, layout.n_bits, bits.data());
}

// A register holds sixteen locations of each of kBytes / 16 blocks. The low nibble of a location byte looks up a byte
// of the query; the high nibble, which holds the sign and the bit number, looks up the bit mask and its mismatching
// value.
template <class Isa>
struct BlockCounter {
    static constexpr int kParts = Isa::kBytes / 16;
    using V = Vec<uint8_t, Isa::kBytes>;
    static constexpr int64_t kMostSteps = 255;  // before a lane overflows

    // Adds counts[i] locations, at most sixteen, starting at at[i].
    template <int N>
    static TOPSIGN_INLINE void add(const uint8_t* const (&at)[kParts], const uint8_t* counts,
                                   const uint8_t* const* query, int64_t offset, V* counted) {
        const V bytes = Isa::load_parts(at);
        const V present = cast<V>(Isa::first_of_parts(counts));
        const V upper = Isa::upper_halves(bytes), place = bytes & splat<V>(15);
        const V mask = Isa::look_up(repeated<V>(kBitMasks, kBitMasks), upper);
        const V wrong = Isa::look_up(repeated<V>(kBitMasks, 0), upper);
        for (int q = 0; q < N; ++q) {
            const V bits = Isa::look_up(load<V>(query[q] + offset), place) & mask;
            counted[q] = counted[q] - (cast<V>(bits == wrong) & present);
        }
    }

    // Groups with a block of more than sixteen locations, and the last group; out of line to save registers.
    template <int N>
    static TOPSIGN_OUTLINE const uint8_t* add_some(const uint8_t* bytes, const uint8_t* counts, int64_t n_blocks,
                                                   const uint8_t* const* query, int64_t offset, int32_t* totals) {
        return for_each_sixteen<kParts>(bytes, counts, n_blocks,
                                        [&](const uint8_t* const(&at)[kParts], const uint8_t* step, int64_t block) {
                                            V counted[N] = {};
                                            add<N>(at, step, query, offset + block * 16, counted);
                                            for (int q = 0; q < N; ++q) totals[q] += Isa::sum_bytes(counted[q]);
                                        });
    }

    template <int N>
    static TOPSIGN_INLINE void count(const uint8_t* code, int64_t n_blocks, const uint8_t* const* query,
                                     int32_t* totals) {
        const uint8_t* bytes = code + n_blocks;
        for (int q = 0; q < N; ++q) totals[q] = 0;
        int64_t block = 0;
        while (block + 8 <= n_blocks) {
            V counted[N] = {};
            for (const int64_t end = std::min(n_blocks / 8 * 8, block + kMostSteps / 8 * 8); block < end; block += 8) {
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
                    add<N>(at, code + b, query, b * 16, counted);
                }
            }
            for (int q = 0; q < N; ++q) totals[q] += Isa::sum_bytes(counted[q]);
        }
        if (block < n_blocks) add_some<N>(bytes, code + block, n_blocks - block, query, block * 16, totals);
    }
};

// Signs of queries, padded to whole registers.
template <class Isa>
class BlockSigns {
   public:
    static constexpr int64_t kGroup = 1;

    BlockSigns(const Layout& layout, const ts_signs& queries)
        : layout_(layout),
          query_bytes_(ceil_div(layout.n_blocks(), Counter::kParts) * Counter::kParts * 16),
          table_(queries.count * query_bytes_) {
        const int64_t bytes = ceil_div(layout.n_pool, 8);
        for (int64_t q = 0; q < queries.count; ++q)
            std::memcpy(table_.data() + q * query_bytes_, queries.bits + q * bytes, bytes);
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 25 * n_queries); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            scan(codes, begin, end, queries, best);
        };
    }

   private:
    using Counter = BlockCounter<Isa>;

    template <class Collector>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, Collector* best) const {
        const int64_t n_blocks = layout_.n_blocks();
        CodeReader reader(layout_, codes.data, codes.count);
        for (int64_t i = begin; i < end; ++i) {
            if (!is_alive(codes.alive, i)) continue;
            const uint8_t* code = reader(i);
            Isa::prefetch(code + 4096);
            const bool sound = sum_bytes(code, n_blocks) <= layout_.n_bits;
            for (int64_t q = 0; q < queries.count;) {
                const uint8_t* query[4];
                int32_t counts[4];
                const int n = queries.count - q >= 4 ? 4 : 1;
                for (int s = 0; s < n; ++s) query[s] = table_.data() + queries[q + s] * query_bytes_;
                if (!sound) {
                    for (int s = 0; s < n; ++s) counts[s] = count_plainly(layout_, code, query[s]);
                } else {
                    n == 4 ? Counter::template count<4>(code, n_blocks, query, counts)
                           : Counter::template count<1>(code, n_blocks, query, counts);
                }
                for (int s = 0; s < n; ++s, ++q)
                    if (counts[s] < best[q].bound()) best[q].offer(counts[s], i);
            }
        }
    }

    const Layout layout_;
    const int64_t query_bytes_;
    std::vector<uint8_t> table_;
};

}  // namespace
}  // namespace topsign
