// Scanning trellis codes: blocks of entries are decoded together and multiplied with queries of 8 bits.
//
// A register holds as many entries as bytes. Sums of products are exact integers; scores are
// (sum * scale + constant) * weight in float32, in that order, on every path.
#pragma once

#include <cmath>
#include <limits>

#include "../core/collect.h"
#include "trellis.h"

namespace topsign {
namespace {

// Where the entry lies that is number i of those that take part.
inline int64_t position(const ts_trellis_codes& codes, int64_t i) { return codes.places ? codes.places[i] : i; }

// Levels of a block of entries, as bytes of seven bits: groups of four coordinates, an entry's four in one lane of 32
// bits.
template <class Isa>
class TrellisBlock {
   public:
    static constexpr int kEntries = Isa::kBytes, kRegisters = 4;
    static constexpr int kWidth = Isa::kBytes / 4;  // entries in a register of 32-bit lanes
    using V = Vec<uint8_t, Isa::kBytes>;
    using Words = Vec<uint16_t, Isa::kBytes / 2>;
    using Ints = Vec<int32_t, kWidth>;
    using Reals = Vec<float, kWidth>;
    using Shorts = Vec<int16_t, Isa::kBytes / 2>;

    explicit TrellisBlock(const ts_trellis& trellis)
        : trellis_(trellis),
          n_words_((trellis.n_coded ? trellis.offsets[trellis.n_coded - 1] : 0) / 16 + 2),
          ring_(std::max<int64_t>(unrolled_bytes(trellis), 2 * n_words_)),
          words_(n_words_ * kEntries),
          levels_(ceil_div(trellis.n_coded, 4) * 4 * kEntries) {
        for (int i = 0; i < 128; ++i) table_[i] = uint8_t((trellis.levels[i] + kMiddle) / 2);
        // Which entry each lane holds: numbers go the way that levels will go.
        V numbers = count_up<V>(), lanes[4];
        Isa::group_bytes(numbers, numbers, numbers, numbers, lanes);
        for (int r = 0; r < kRegisters; ++r)
            for (int i = 0; i < kWidth; ++i) entry_[r * kWidth + i] = lanes[r][4 * i];
    }

    int64_t n_groups() const { return ceil_div(trellis_.n_coded, 4); }
    int entry(int lane) const { return entry_[lane]; }
    TOPSIGN_INLINE V levels(int64_t group, int r) const {
        return load<V>(levels_.data() + (group * kRegisters + r) * kEntries);
    }

    // The codes number `first` and after, or those at the places from there on.
    void decode(const ts_trellis_codes& codes, int64_t first, int64_t n) {
        for (int64_t e = 0; e < kEntries; ++e)
            read(codes.data + position(codes, first + std::min(e, n - 1)) * trellis_.code_bytes, e);
        const Words mask = splat<Words>(uint16_t(0xffff << (16 - trellis_.window)));
        const auto look_up = Isa::level_table(table_);
        Words even{}, odd{};
        int offset = -1;
        V four[4] = {};
        const int64_t n_padded = 4 * n_groups();
        for (int64_t i = 0; i < n_padded; ++i) {
            if (i >= trellis_.n_coded) {
                four[i % 4] = V{};
            } else {
                if (trellis_.offsets[i] != offset) {
                    offset = trellis_.offsets[i];
                    const uint16_t* const at = words_.data() + offset / 16 * kEntries;
                    even = window(at, offset % 16) & mask;
                    odd = window(at + kEntries / 2, offset % 16) & mask;
                }
                const Words multiplier = splat<Words>(trellis_.multipliers[i % kSequences]);
                const Words addend = splat<Words>(trellis_.addends[i % kSequences]);
                const Words a = even * multiplier + addend, b = odd * multiplier + addend;
                four[i % 4] = look_up(cast<V>((a >> 8) | (b & splat<Words>(0xff00))));
            }
            if (i % 4 == 3) {
                V grouped[4];
                Isa::group_bytes(four[0], four[1], four[2], four[3], grouped);
                for (int r = 0; r < kRegisters; ++r)
                    store(levels_.data() + (i / 4 * kRegisters + r) * kEntries, grouped[r]);
            }
        }
    }

    // One over the norm of each entry's reconstruction, in the order of lanes; zero where there is none.
    void inverse_norms(const ts_trellis_norm& norm, float* out) const {
        Ints sums[kRegisters] = {};
        for (int64_t g = 0; g < n_groups(); ++g) {
            int16_t quadratic[4] = {}, linear[4] = {};
            for (int64_t i = 4 * g; i < std::min(4 * g + 4, trellis_.n_coded); ++i) {
                quadratic[i % 4] = norm.quadratic[i];
                linear[i % 4] = norm.linear[i];
            }
            const Shorts q_even = pair(quadratic[0], quadratic[2]), q_odd = pair(quadratic[1], quadratic[3]);
            const Shorts l_even = pair(linear[0], linear[2]), l_odd = pair(linear[1], linear[3]);
            for (int r = 0; r < kRegisters; ++r) {
                const Shorts bytes = cast<Shorts>(levels(g, r)), middle = splat<Shorts>(int16_t(kMiddle));
                const Shorts even = ((bytes & splat<Shorts>(int16_t(127))) << 1) - middle;
                const Shorts odd = ((bytes >> 8) << 1) - middle;
                sums[r] = sums[r] + Isa::multiply_pairs(even * even, q_even) + Isa::multiply_pairs(even, l_even) +
                          Isa::multiply_pairs(odd * odd, q_odd) + Isa::multiply_pairs(odd, l_odd);
            }
        }
        for (int r = 0; r < kRegisters; ++r) {
            const Reals squares = convert<Reals>(sums[r]) * splat<Reals>(norm.unit) + splat<Reals>(norm.constant);
            for (int i = 0; i < kWidth; ++i) {
                const float square = squares[i];
                out[r * kWidth + i] = square > 0 ? 1.f / std::sqrt(square) : 0.f;
            }
        }
    }

    int8_t level(int64_t i, int lane) const {
        return int8_t(2 * levels_[i / 4 * kRegisters * kEntries + 4 * lane + i % 4] - kMiddle);
    }

   private:
    static TOPSIGN_INLINE Shorts pair(int16_t low, int16_t high) {
        return cast<Shorts>(splat<Ints>(int32_t(uint16_t(low)) | int32_t(uint32_t(uint16_t(high)) << 16)));
    }

    void read(const uint8_t* code, int64_t e) {
        uint16_t* const to = words_.data() + e % 2 * (kEntries / 2) + e / 2;
        const auto word = [](const uint8_t* from, int64_t j) { return uint32_t(from[2 * j] << 8 | from[2 * j + 1]); };
        const int64_t whole = std::min(n_words_, trellis_.n_bits / 16);
        if (whole < 3) {  // a short ring: around it more than once, perhaps
            unroll(trellis_, code, ring_.data());
            for (int64_t j = 0; j < n_words_; ++j) to[j * kEntries] = uint16_t(word(ring_.data(), j));
            return;
        }
        for (int64_t j = 0; j < whole; ++j) to[j * kEntries] = uint16_t(word(code, j));
        if (whole == n_words_) return;
        // The last bits of the ring, then its beginning.
        const int part = int(trellis_.n_bits % 16);
        uint32_t before =
            part == 0 ? 0 : uint32_t(code[2 * whole] << 8 | (part > 8 ? code[2 * whole + 1] : 0)) >> (16 - part);
        for (int64_t j = whole; j < n_words_; ++j) {
            const uint32_t next = word(code, j - whole);
            to[j * kEntries] = uint16_t((before << 16 | next) >> part);
            before = next;
        }
    }

    // 16 bits from bit `shift` of the words on, for every second entry.
    static TOPSIGN_INLINE Words window(const uint16_t* at, int shift) {
        if (shift == 0) return load<Words>(at);
        return load<Words>(at) << shift | load<Words>(at + kEntries) >> (16 - shift);
    }

    const ts_trellis& trellis_;
    int64_t n_words_;
    std::vector<uint8_t> ring_;
    std::vector<uint16_t> words_;  // a row of all entries for each word of the ring: even ones, then odd ones
    std::vector<uint8_t> levels_;
    alignas(64) uint8_t table_[128];
    int entry_[kEntries];
};

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
          code_bytes_(trellis.code_bytes),
          padded_(4 * block_.n_groups()) {
        values_.resize(queries.count * padded_);
        middle_.resize(queries.count);
        for (int64_t q = 0; q < queries.count; ++q) {
            const int8_t* const from = queries.values + q * trellis.n_coded;
            std::copy(from, from + trellis.n_coded, values_.begin() + q * padded_);
            for (int64_t i = 0; i < trellis.n_coded; ++i) middle_[q] -= kMiddle * from[i];
        }
    }

    // Calls body(block, position, n_entries) for each block of entries [begin, end), decoded.
    template <class Body>
    void each_block(int64_t begin, int64_t end, const Body& body) {
        for (int64_t first = begin; first < end; first += kEntries) {
            const int64_t n = std::min<int64_t>(kEntries, end - first);
            block_.decode(codes_, first, n);
            body(first, n);
        }
    }

    // Sums of N queries with every entry of the block: of the bytes first, then of the levels.
    template <int N>
    TOPSIGN_INLINE void sums(int64_t q, Ints (&sum)[N][kRegisters]) const {
        for (int j = 0; j < N; ++j)
            for (int r = 0; r < kRegisters; ++r) sum[j][r] = Ints{};
        const int8_t* const values = values_.data() + q * padded_;
        for (int64_t g = 0; g < block_.n_groups(); ++g) {
            V levels[kRegisters];
            for (int r = 0; r < kRegisters; ++r) levels[r] = block_.levels(g, r);
            for (int j = 0; j < N; ++j) {
                int32_t four;
                std::memcpy(&four, values + j * padded_ + 4 * g, 4);
                for (int r = 0; r < kRegisters; ++r)
                    sum[j][r] = Isa::add_products(sum[j][r], levels[r], splat<Ints>(four));
            }
        }
        for (int j = 0; j < N; ++j)
            for (int r = 0; r < kRegisters; ++r) sum[j][r] = (sum[j][r] << 1) + splat<Ints>(middle_[q + j]);
    }

    // Offers every entry of the block that reaches its bound; keys are scores with the sign changed.
    template <int N, class Collector>
    void offer(int64_t q, int64_t first, int64_t n, const float* weights, Collector* best) const {
        Ints sum[N][kRegisters];
        sums<N>(q, sum);
        for (int j = 0; j < N; ++j) {
            const Reals scale = splat<Reals>(queries_.scales[q + j]),
                        constant = splat<Reals>(queries_.constants[q + j]);
            const Reals bound = splat<Reals>(best[q + j].bound());
            Reals keys[kRegisters];
            Ints reached{};
            for (int r = 0; r < kRegisters; ++r) {
                const Reals score = (convert<Reals>(sum[j][r]) * scale + constant) * load<Reals>(weights + r * kWidth);
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
            int64_t q = 0;
            for (; q + Isa::kTrellisTile <= queries_.count; q += Isa::kTrellisTile)
                offer<Isa::kTrellisTile>(q, first, n, weights, best);
            for (; q < queries_.count; ++q) offer<1>(q, first, n, weights, best);
        });
    }

    void write_sums(int64_t begin, int64_t end, int32_t* out) {
        each_block(begin, end, [&](int64_t first, int64_t n) {
            for (int64_t q = 0; q < queries_.count; ++q) {
                Ints sum[1][kRegisters];
                sums<1>(q, sum);
                for (int lane = 0; lane < kEntries; ++lane)
                    if (block_.entry(lane) < n)
                        out[q * codes_.count + first + block_.entry(lane)] = sum[0][lane / kWidth][lane % kWidth];
            }
        });
    }

   private:
    // What sums are multiplied with, in the order of lanes.
    void weigh(int64_t first, int64_t n, float* weights) const {
        block_.inverse_norms(codes_.norm, weights);
        if (!codes_.fractions) return;
        for (int lane = 0; lane < kEntries; ++lane) {
            const int entry = block_.entry(lane);
            if (entry < n)
                weights[lane] *= norm_of(codes_.data + (position(codes_, first + entry) + 1) * code_bytes_ - 2);
        }
    }

    float norm_of(const uint8_t* packed) const {
        const int steps = packed[0] | packed[1] << 8;
        return steps == 0 ? 0.f : std::ldexp(codes_.fractions[steps & 511], (steps >> 9) - 64);
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
    int64_t code_bytes_, padded_;
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
            alignas(64) float weights[kEntries];
            for (int64_t first = begin * kEntries; first < std::min(codes.count, end * kEntries); first += kEntries) {
                const int64_t n = std::min(kEntries, codes.count - first);
                block.decode(codes, first, n);
                block.inverse_norms(codes.norm, weights);
                for (int lane = 0; lane < kEntries; ++lane)
                    if (block.entry(lane) < n) out[first + block.entry(lane)] = weights[lane];
            }
        });
}

template <class Isa>
void trellis_sums(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                  const ts_trellis_queries& queries, int32_t* out) {
    parallel_for(n_threads, codes.count, decode_cost(trellis, queries.count), [&](int64_t begin, int64_t end) {
        TrellisScan<Isa>(trellis, codes, queries).write_sums(begin, end, out);
    });
}

template <class Isa, class Collector>
Parts<Collector> scan_trellis(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes,
                              const ts_trellis_queries& queries, const std::vector<Collector>& empty) {
    Ranges whole;
    whole.add(codes.count, nullptr);
    return scan_ranges(n_threads, whole, decode_cost(trellis, queries.count), empty,
                       [&](int64_t, int64_t begin, int64_t end, Collector* best) {
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
