// Scanning trellis codes: blocks of entries are decoded together and multiplied with queries of 8 bits.
//
// Sums of products are exact integers; scores are (sum * scale + constant) * weight in float32, in that order, on every
// path. A query of two digits is two rows of bytes, whose sums become one before anything else is done with them.
#pragma once

#include <cmath>
#include <limits>

#include "../core/collect.h"
#include "trellis_block.h"

namespace topsign {
namespace {

template <class Isa>
class TrellisScan {
    using Block = TrellisBlock<Isa>;
    using V = typename Block::V;
    using Ints = typename Block::Ints;
    using Reals = typename Block::Reals;
    static constexpr int kEntries = Block::kEntries, kRegisters = Block::kRegisters, kWidth = Block::kWidth;

   public:
    TrellisScan(const ts_trellis& trellis, const ts_trellis_codes& codes, const ts_trellis_queries& queries)
        : codes_(codes),
          queries_(queries),
          block_(trellis),
          norm_(codes.norm, trellis.n_coded),
          code_bytes_(trellis.code_bytes),
          padded_(4 * block_.n_groups()),
          n_rows_(queries.count * n_digits(queries)) {
        values_.resize(n_rows_ * padded_);
        middle_.resize(n_rows_);
        for (int64_t row = 0; row < n_rows_; ++row) {
            const int64_t q = row / n_digits(queries);
            const int8_t* const digits = row % n_digits(queries) ? queries.fine : queries.values;
            const int8_t* const from = digits + q * trellis.n_coded;
            std::copy(from, from + trellis.n_coded, values_.begin() + row * padded_);
            for (int64_t i = 0; i < trellis.n_coded; ++i) middle_[row] -= kMiddle * from[i];
        }
    }

    static int64_t n_digits(const ts_trellis_queries& queries) { return queries.fine ? 2 : 1; }

    // Calls body(block, position, n_entries) for each block of entries [begin, end), decoded.
    template <class Body>
    void each_block(int64_t begin, int64_t end, const Body& body) {
        for (int64_t first = begin; first < end; first += kEntries) {
            const int64_t n = std::min<int64_t>(kEntries, end - first);
            block_.decode(codes_, first, n);
            body(first, n);
        }
    }

    // Sums of N rows with every entry of the block: of the bytes first, in registers, then of the levels.
    template <int N>
    TOPSIGN_INLINE void sums(int64_t row, Ints (&sum)[N][kRegisters]) const {
        Ints total[N][kRegisters] = {};
        const int8_t* const values = values_.data() + row * padded_;
        for (int64_t g = 0; g < block_.n_groups(); ++g) {
            V levels[kRegisters];
            for (int r = 0; r < kRegisters; ++r) levels[r] = block_.levels(g, r);
            for (int j = 0; j < N; ++j) {
                int32_t four;
                std::memcpy(&four, values + j * padded_ + 4 * g, 4);
                for (int r = 0; r < kRegisters; ++r)
                    total[j][r] = Isa::add_products(total[j][r], levels[r], splat<Ints>(four));
            }
        }
        for (int j = 0; j < N; ++j)
            for (int r = 0; r < kRegisters; ++r) sum[j][r] = (total[j][r] << 1) + splat<Ints>(middle_[row + j]);
    }

    // The sum of query j of a tile, of all its digits.
    template <int kDigits, int N>
    TOPSIGN_INLINE Ints whole(const Ints (&sum)[N][kRegisters], int j, int r) const {
        if constexpr (kDigits == 1) return sum[j][r];
        return (sum[2 * j][r] << int(queries_.fine_bits)) + sum[2 * j + 1][r];
    }

    // Offers every entry of the block that reaches its bound to N queries; keys are scores with the sign changed.
    template <int N, int kDigits, class Collector>
    void offer(int64_t q, int64_t first, int64_t n, const float* weights, Collector* best) const {
        Ints sum[N * kDigits][kRegisters];
        sums<N * kDigits>(q * kDigits, sum);
        for (int j = 0; j < N; ++j) {
            const Reals scale = splat<Reals>(queries_.scales[q + j]),
                        constant = splat<Reals>(queries_.constants[q + j]);
            const Reals bound = splat<Reals>(best[q + j].bound());
            Reals keys[kRegisters];
            Ints reached{};
            for (int r = 0; r < kRegisters; ++r) {
                const Reals total = convert<Reals>(whole<kDigits>(sum, j, r));
                const Reals score = (total * scale + constant) * load<Reals>(weights + r * kWidth);
                keys[r] = Reals{} - score;
                reached = reached | (keys[r] < bound);
            }
            if (any(reached)) offer_all(keys, first, n, best[q + j]);
        }
    }

    template <class Collector>
    void scan(int64_t begin, int64_t end, Collector* best) {
        alignas(64) float weights[kEntries];
        each_block(begin, end, [&](int64_t first, int64_t n) {
            weigh(first, n, weights);
            if (queries_.fine)
                offer_tiles<2>(first, n, weights, best);
            else
                offer_tiles<1>(first, n, weights, best);
        });
    }

    void write_sums(int64_t begin, int64_t end, int32_t* out) {
        each_block(begin, end, [&](int64_t first, int64_t n) {
            for (int64_t q = 0; q < queries_.count; ++q) {
                if (queries_.fine)
                    write_sums_of<2>(q, first, n, out);
                else
                    write_sums_of<1>(q, first, n, out);
            }
        });
    }

   private:
    // As many rows at a time as registers hold.
    template <int kDigits, class Collector>
    TOPSIGN_INLINE void offer_tiles(int64_t first, int64_t n, const float* weights, Collector* best) const {
        constexpr int kQueries = Isa::kTrellisTile / kDigits;
        int64_t q = 0;
        for (; q + kQueries <= queries_.count; q += kQueries) offer<kQueries, kDigits>(q, first, n, weights, best);
        for (; q < queries_.count; ++q) offer<1, kDigits>(q, first, n, weights, best);
    }

    template <int kDigits>
    void write_sums_of(int64_t q, int64_t first, int64_t n, int32_t* out) const {
        Ints sum[kDigits][kRegisters];
        sums<kDigits>(q * kDigits, sum);
        for (int lane = 0; lane < kEntries; ++lane)
            if (block_.entry(lane) < n)
                out[q * codes_.count + first + block_.entry(lane)] =
                    whole<kDigits>(sum, 0, lane / kWidth)[lane % kWidth];
    }

    // What sums are multiplied with, in the order of lanes.
    void weigh(int64_t first, int64_t n, float* weights) const {
        block_.inverse_norms(norm_, weights);
        if (!codes_.fractions) return;
        for (int lane = 0; lane < kEntries; ++lane) {
            const int entry = block_.entry(lane);
            if (entry < n)
                weights[lane] *= norm_of(codes_.data + (position(codes_, first + entry) + 1) * code_bytes_ - 2);
        }
    }

    float norm_of(const uint8_t* packed) const {
        const uint32_t steps = uint32_t(packed[0] | packed[1] << 8);
        const float power = cast<float>(((steps >> 9) + 127 - 64) << 23);  // of two
        return steps == 0 ? 0.f : codes_.fractions[steps & 511] * power;
    }

    // In ascending order of position, as collectors want it.
    template <class Collector>
    TOPSIGN_OUTLINE void offer_all(const Reals* keys, int64_t first, int64_t n, Collector& best) const {
        float by_entry[kEntries];
        for (int lane = 0; lane < kEntries; ++lane) by_entry[block_.entry(lane)] = keys[lane / kWidth][lane % kWidth];
        for (int64_t e = 0; e < n; ++e) {
            if (!(by_entry[e] < best.bound())) continue;
            const int64_t at = position(codes_, first + e);
            if (is_alive(codes_.alive, at)) best.offer(by_entry[e], at);
        }
    }

    const ts_trellis_codes& codes_;
    const ts_trellis_queries& queries_;
    Block block_;
    NormSums norm_;
    int64_t code_bytes_, padded_, n_rows_;
    std::vector<int8_t> values_;
    std::vector<int32_t> middle_;
};

// Nanoseconds that an entry takes, about.
inline double decode_cost(const ts_trellis& trellis, int64_t n_queries = 0) {
    return double(trellis.n_coded) * (0.25 + 0.015 * double(n_queries));
}

template <class Isa>
void trellis_decode(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, int8_t* out) {
    constexpr int64_t kEntries = TrellisBlock<Isa>::kEntries;
    parallel_for(
        n_threads, ceil_div(codes.count, kEntries), kEntries * decode_cost(trellis), [&](int64_t begin, int64_t end) {
            TrellisBlock<Isa> block(trellis);
            for (int64_t first = begin * kEntries; first < std::min(codes.count, end * kEntries); first += kEntries) {
                const int64_t n = std::min(kEntries, codes.count - first);
                block.decode(codes, first, n);
                for (int lane = 0; lane < kEntries; ++lane)
                    if (block.entry(lane) < n)
                        for (int64_t i = 0; i < trellis.n_coded; ++i)
                            out[(first + block.entry(lane)) * trellis.n_coded + i] = block.level(i, lane);
            }
        });
}

template <class Isa>
void trellis_weights(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, float* out) {
    constexpr int64_t kEntries = TrellisBlock<Isa>::kEntries;
    parallel_for(
        n_threads, ceil_div(codes.count, kEntries), kEntries * decode_cost(trellis), [&](int64_t begin, int64_t end) {
            TrellisBlock<Isa> block(trellis);
            const NormSums norm(codes.norm, trellis.n_coded);
            alignas(64) float weights[kEntries];
            for (int64_t first = begin * kEntries; first < std::min(codes.count, end * kEntries); first += kEntries) {
                const int64_t n = std::min(kEntries, codes.count - first);
                block.decode(codes, first, n);
                block.inverse_norms(norm, weights);
                for (int lane = 0; lane < kEntries; ++lane)
                    if (block.entry(lane) < n) out[first + block.entry(lane)] = weights[lane];
            }
        });
}

template <class Isa>
void trellis_sums(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                  const ts_trellis_queries& queries, int32_t* out) {
    parallel_for(
        n_threads, codes.count, decode_cost(trellis, TrellisScan<Isa>::n_digits(queries) * queries.count),
        [&](int64_t begin, int64_t end) { TrellisScan<Isa>(trellis, codes, queries).write_sums(begin, end, out); });
}

template <class Isa, class Collector>
Parts<Collector> scan_trellis(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                              const ts_trellis_queries& queries, const std::vector<Collector>& empty) {
    Ranges whole;
    whole.add(codes.count, nullptr);
    return scan_ranges(n_threads, whole, decode_cost(trellis, TrellisScan<Isa>::n_digits(queries) * queries.count),
                       empty, [&](int64_t, int64_t begin, int64_t end, Collector* best) {
                           TrellisScan<Isa>(trellis, codes, queries).scan(begin, end, best);
                       });
}

template <class Isa>
void trellis_search(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                    const ts_trellis_queries& queries, const ts_best& best) {
    Tops<float> tops(queries.count, best.k);
    scan_trellis<Isa>(n_threads, trellis, codes, queries, tops.collectors());
    float* const values = static_cast<float*>(best.values);
    tops.write(values, best.positions);
    for (int64_t i = 0; i < queries.count * best.k; ++i)
        if (best.positions[i] >= 0) values[i] = 0.f - values[i];
}

// Scores of at least the threshold: keys below the least float above its negative.
template <class Isa>
void trellis_within(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                    const ts_trellis_queries& queries, const ts_found& found) {
    std::vector<Within<float>> empty;
    for (int64_t q = 0; q < queries.count; ++q) {
        const float threshold = static_cast<const float*>(found.bounds)[q];
        empty.emplace_back(std::nextafter(0.f - threshold, std::numeric_limits<float>::infinity()));
    }
    const auto parts = scan_trellis<Isa>(n_threads, trellis, codes, queries, empty);
    float* const values = static_cast<float*>(found.values);
    int64_t total = 0;
    write_within(parts, 0, found.capacity, total, values, found.positions, found.counts);
    for (int64_t i = 0; i < std::min(total, found.capacity); ++i) values[i] = 0.f - values[i];
}

}  // namespace
}  // namespace topsign
