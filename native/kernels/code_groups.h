// Comparison of few queries with groups of codes, four codes at a time, for instruction sets with 128-entry byte
// look-ups. Codes in the compact layout are converted to blocks first.
#pragma once

#include <optional>

#include "../core/collect.h"
#include "../core/lines.h"
#include "block_hamming.h"
#include "exact_scores.h"

namespace topsign {
namespace {

// Reads groups of codes and compares them with all queries, in passes of as many queries as registers allow.
template <class Isa>
class CodeGroups {
   public:
    static constexpr int64_t kMost = 32;  // codes of a group, which stay in the near caches for further passes
    using Decoder = typename Isa::BlockDecoder;
    using Four = const uint8_t* [4];

    // Groups have `size` codes.
    CodeGroups(const Layout& layout, int64_t size)
        : layout_(layout),
          size_(size),
          room_bytes_(Layout(ts_layout{layout.n_bits, layout.n_pool, -1}).code_bytes() + Decoder::kSpare),
          copy_bytes_(layout.code_bytes() + CodeReader::kPad),
          rooms_((size_ + 1) * room_bytes_),
          copies_(size_ * copy_bytes_) {
        if (!layout.fast()) decoder_.emplace(layout);
    }

    static bool serves(const Layout& layout) { return layout.fast() || Decoder::serves(layout); }

    // Calls compare(pass, fours, n_fours, ahead) for each of n_passes passes over a group, then offer(slot, position,
    // sound) for each of its codes. Invalid codes (sound is false) are compared as if they had no locations.
    template <class Compare, class Offer>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, int64_t n_passes, const Compare& compare,
              const Offer& offer) {
        const int64_t stride = layout_.code_bytes();
        const int64_t step = ceil_div(4 * stride, n_passes * layout_.n_blocks());  // bytes prefetched per block
        for (int64_t next = begin; next < end;) {
            int64_t positions[kMost], n = 0;
            const uint8_t* at[kMost];
            bool sound[kMost];
            for (; next < end && n < size_; ++next)
                if (is_alive(codes.alive, next)) positions[n++] = next;
            for (int64_t first = 0; first < n; first += 4)
                read(codes, positions + first, int(std::min<int64_t>(4, n - first)), first, at + first, sound + first);
            typename Isa::Ahead ahead{codes.data + next * stride, step};
            for (int64_t pass = 0; pass < n_passes; ++pass)
                compare(pass, reinterpret_cast<const Four*>(at), ceil_div(n, 4), ahead);
            for (int64_t slot = 0; slot < n; ++slot) offer(slot, positions[slot], sound[slot]);
        }
    }

   private:
    uint8_t* room(int64_t slot) { return rooms_.data() + slot * room_bytes_; }
    const uint8_t* nothing() { return room(size_); }

    // Returns pointers to up to four codes in blocks, padded for vector loads. Missing and invalid codes are replaced
    // by a code without locations.
    void read(const ts_codes& codes, const int64_t* positions, int n, int64_t slot, const uint8_t** at, bool* sound) {
        const int64_t stride = layout_.code_bytes();
        for (int c = 0; c < n; ++c) {
            at[c] = codes.data + positions[c] * stride;
            if ((codes.count - positions[c] - 1) * stride >= CodeReader::kPad) continue;
            std::memcpy(copies_.data() + (slot + c) * copy_bytes_, at[c], stride);
            at[c] = copies_.data() + (slot + c) * copy_bytes_;
        }
        if (decoder_) {
            uint8_t* out[4];
            for (int c = 0; c < n; ++c) out[c] = room(slot + c);
            const int decoded = decoder_->decode(at, n, out);
            for (int c = 0; c < n; ++c) {
                sound[c] = decoded >> c & 1;
                at[c] = out[c];
            }
        } else {
            for (int c = 0; c < n; ++c) sound[c] = Isa::count_locations(at[c], layout_.n_blocks()) <= layout_.n_bits;
        }
        for (int c = 0; c < 4; ++c)
            if (c >= n || !sound[c]) at[c] = nothing();
    }

    const Layout layout_;
    const int64_t size_, room_bytes_, copy_bytes_;
    std::vector<uint8_t> rooms_;   // decoded codes; the last one has no locations
    std::vector<uint8_t> copies_;  // codes near the end of their array
    std::optional<Decoder> decoder_;
};

// Number of queries (or groups of eight) in a pass, a power of two of at most `most`; the last ones may be padding.
inline int64_t width_of(int64_t left, int64_t most) {
    int64_t width = 1;
    while (width < left && width < most) width *= 2;
    return width;
}

// Tables of 128 bytes per block and query (or group of eight); those of a pass are adjacent for each block.
struct BlockTables {
    Lines<uint8_t> lines;
    const int64_t n_blocks, most;

    BlockTables(int64_t n, int64_t n_blocks, int64_t most)
        : lines(ceil_div(n, most) * most * n_blocks * kBlockRows), n_blocks(n_blocks), most(most) {}

    uint8_t* at(int64_t n, int64_t i, int64_t block) {
        const int64_t first = i / most * most;
        return lines.data() + (first * n_blocks + block * width_of(n - first, most) + i - first) * kBlockRows;
    }

    const uint8_t* pass(int64_t first) const { return lines.data() + first * n_blocks * kBlockRows; }
};

// Mismatches of up to 64 queries, which are always compared together.
template <class Isa>
class BitGroups {
   public:
    static constexpr int64_t kQueries = Isa::BitBlocks::kQueries, kGroup = CodeGroups<Isa>::kMost;

    BitGroups(const Layout& layout, const ts_signs& queries)
        : layout_(layout),
          queries_(queries),
          n_eights_(ceil_div(queries.count, kQueries)),
          tables_(n_eights_, ceil_div(layout.n_blocks(), Isa::BitBlocks::kStep) * Isa::BitBlocks::kStep, kWidth) {
        const int64_t bytes = ceil_div(layout.n_pool, 8);
        for (int64_t q = 0; q < queries.count; ++q)
            for (int64_t block = 0; block < layout.n_blocks(); ++block) {
                uint8_t signs[16] = {};
                std::memcpy(signs, queries.bits + q * bytes + 16 * block, std::min<int64_t>(16, bytes - 16 * block));
                uint8_t* const table = tables_.at(n_eights_, q / kQueries, block);
                for (int bit = 0; bit < 8; ++bit)
                    for (int byte = 0; byte < 16; ++byte)
                        table[16 * bit + byte] |= uint8_t((signs[byte] >> bit & 1) << q % kQueries);
            }
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 20 + 2 * n_queries); }

    auto start() const {
        return [this, groups = CodeGroups<Isa>(layout_, n_passes() == 1 ? 4 : kGroup)](
                   const ts_codes& codes, int64_t begin, int64_t end, const QueryList&, auto* best) mutable {
            scan(groups, codes, begin, end, best);
        };
    }

   private:
    static constexpr int64_t kWidth = 2;  // groups of eight queries per pass

    int64_t n_passes() const { return ceil_div(n_eights_, kWidth); }

    template <class Collector>
    void scan(CodeGroups<Isa>& groups, const ts_codes& codes, int64_t begin, int64_t end, Collector* best) const {
        int32_t counts[kGroup / 4][kMostListed / kQueries][4][kQueries];
        groups.scan(
            codes, begin, end, n_passes(),
            [&](int64_t pass, const typename CodeGroups<Isa>::Four* fours, int64_t n_fours, auto& ahead) {
                const int64_t eight = pass * kWidth;
                const auto count = width_of(n_eights_ - eight, kWidth) == 2 ? Isa::BitBlocks::template count<2>
                                                                            : Isa::BitBlocks::template count<1>;
                for (int64_t f = 0; f < n_fours; ++f)
                    count(fours[f], layout_.n_blocks(), tables_.pass(eight), ahead, &counts[f][eight]);
            },
            [&](int64_t slot, int64_t i, bool sound) {
                for (int64_t q = 0; q < queries_.count; ++q) {
                    const int32_t count = sound ? counts[slot / 4][q / kQueries][slot % 4][q % kQueries]
                                                : count_plainly(layout_, codes.data + i * layout_.code_bytes(),
                                                                queries_.bits + q * ceil_div(layout_.n_pool, 8));
                    if (count < best[q].bound()) best[q].offer(count, i);
                }
            });
    }

    const Layout layout_;
    const ts_signs queries_;
    const int64_t n_eights_;
    BlockTables tables_;
};

// Mismatches of queries one by one, as sums of signs, which is cheaper than bit planes for a single query.
template <class Isa>
class SignGroups {
   public:
    static constexpr int64_t kGroup = CodeGroups<Isa>::kMost;

    SignGroups(int n_threads, const Layout& layout, const ts_signs& queries)
        : layout_(layout), queries_(queries), tables_(queries.count, layout.n_blocks(), 1) {
        parallel_for(n_threads, queries.count, double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                for (int64_t row = 0; row < layout.n_pool; ++row) {
                    const int64_t offset = row % kBlockRows;
                    tables_.at(queries.count, q, row / kBlockRows)[(offset & 7) << 4 | offset >> 3] =
                        uint8_t(get_bit(signs(q), row) ? 129 : 127);
                }
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 20 + 2 * n_queries); }

    auto start() const {
        return [this, groups = CodeGroups<Isa>(layout_, queries_.count == 1 ? 4 : kGroup)](
                   const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) mutable {
            scan(groups, codes, begin, end, queries, best);
        };
    }

   private:
    template <class Collector>
    void scan(CodeGroups<Isa>& groups, const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries,
              Collector* best) const {
        int32_t sums[kGroup / 4][kMostListed][4];
        const auto add =
            queries_.count == 1 ? Isa::ValueBlocks::template add<1, 1> : Isa::ValueBlocks::template add<1, kGroup / 4>;
        groups.scan(
            codes, begin, end, queries.count,
            [&](int64_t pass, const typename CodeGroups<Isa>::Four* fours, int64_t n_fours, auto& ahead) {
                add(fours, n_fours, layout_.n_blocks(), tables_.pass(queries[pass]), ahead, &sums[0][pass],
                    kMostListed);
            },
            [&](int64_t slot, int64_t i, bool sound) {
                for (int64_t q = 0; q < queries.count; ++q) {
                    const int32_t count =
                        sound ? int32_t(layout_.n_bits - sums[slot / 4][q][slot % 4]) / 2
                              : count_plainly(layout_, codes.data + i * layout_.code_bytes(), signs(queries[q]));
                    if (count < best[q].bound()) best[q].offer(count, i);
                }
            });
    }

    const uint8_t* signs(int64_t q) const { return queries_.bits + q * ceil_div(layout_.n_pool, 8); }

    const Layout layout_;
    const ts_signs queries_;
    BlockTables tables_;
};

// Scores: rounded sums, then exact sums of the codes that may enter. Passes have up to kWidth queries. If it is 1,
// queries are compared one by one, any of them; otherwise all together, up to 64.
template <class Isa, int64_t kWidth>
class ValueGroups {
   public:
    static constexpr int64_t kGroup = CodeGroups<Isa>::kMost;

    ValueGroups(int n_threads, const Layout& layout, const ts_rows& queries)
        : layout_(layout),
          queries_(queries),
          rounded_(round_queries<Isa>(n_threads, queries, layout.n_bits)),
          tables_(queries.count, layout.n_blocks(), kWidth) {
        parallel_for(n_threads, queries.count, double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                for (int64_t block = 0; block < layout.n_blocks(); ++block) {
                    const int64_t first = block * kBlockRows, n = std::min(kBlockRows, layout.n_pool - first);
                    const int8_t* const values = &rounded_.values[q * layout.n_pool + first];
                    uint8_t* const table = tables_.at(queries.count, q, block);
                    for (int64_t i = 0; i < n; ++i) table[(i & 7) << 4 | i >> 3] = uint8_t(values[i] + 128);
                }
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 20 + 8 * n_queries); }

    auto start() const {
        return [this, groups = CodeGroups<Isa>(layout_, queries_.count == 1 ? 4 : kGroup)](
                   const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) mutable {
            scan(groups, codes, begin, end, queries, best);
        };
    }

   private:
    template <class Collector>
    void scan(CodeGroups<Isa>& groups, const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries,
              Collector* best) const {
        int32_t sums[kGroup / 4][kMostListed][4];
        ExactScores<Isa, Collector> exact(codes, queries_, queries, best);
        SumFloors<kMostListed, Collector> floors(rounded_, codes, queries, best);
        bool some_reach = false;  // whether any of the current four codes may enter
        groups.scan(
            codes, begin, end, ceil_div(queries.count, kWidth),
            [&](int64_t pass, const typename CodeGroups<Isa>::Four* fours, int64_t n_fours, auto& ahead) {
                constexpr int kFours = int(kGroup / 4);
                const int64_t q = pass * kWidth, width = width_of(queries.count - q, kWidth);
                const auto add = width == 16           ? Isa::ValueBlocks::template add<16, kFours>
                                 : width == 8          ? Isa::ValueBlocks::template add<8, kFours>
                                 : width == 4          ? Isa::ValueBlocks::template add<4, kFours>
                                 : width == 2          ? Isa::ValueBlocks::template add<2, kFours>
                                 : queries_.count == 1 ? Isa::ValueBlocks::template add<1, 1>
                                                       : Isa::ValueBlocks::template add<1, kFours>;
                add(fours, n_fours, layout_.n_blocks(), tables_.pass(queries[q]), ahead, &sums[0][q], kMostListed);
            },
            [&](int64_t slot, int64_t i, bool sound) {
                if (slot % 4 == 0) some_reach = floors.any_reached(sums[slot / 4]);
                if (!some_reach && sound) return;
                for (int64_t q = 0; q < queries.count; ++q) {
                    const int32_t sum = sums[slot / 4][q][slot % 4];
                    if (sound && !may_enter(rounded_, queries[q], sum, weight_of(codes, i), best[q])) continue;
                    exact.offer(i, q);
                    floors.refresh(q);
                }
            });
    }

    const Layout layout_;
    const ts_rows queries_;
    const Rounded rounded_;
    BlockTables tables_;
};

}  // namespace
}  // namespace topsign
