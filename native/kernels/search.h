// Searches: the k best codes, all that reach a bound, and all scores.
//
// Codes are compared by look-up tables, or decoded and multiplied with many queries. Both find candidates by rounded
// sums; the exact integer sum of a candidate decides. Adaptive codes have no tables: few queries are compared exactly.
#pragma once

#include <memory>

#include "../core/collect.h"
#include "tables.h"
#include "tile_products.h"

namespace topsign {
namespace {

// A block of a scan.
struct Listed {
    const uint8_t* block;
    const ts_codes* codes;  // the range that it belongs to
    int64_t number;         // of the block in its range
    uint32_t mask;          // codes that take part
};

// Upper bounds of scores from rounded sums: score <= (sum * slope + offset) * factor, but for rounding in float32.
struct UpperBound {
    float slope, offset;
    float middle;  // (sum * slope + middle) * factor is the rounded score itself

    UpperBound(const ts_queries& queries, int64_t q, const TableScale& table) {
        const double scale = queries.scales[q], constant = queries.constants[q];
        const double slack = 2e-6 * (scale * table.largest + std::fabs(constant));
        slope = float(scale * table.step);
        middle = float(scale * table.base + constant);
        offset = float(scale * (table.base + table.margin) + constant + slack);
        if (std::isfinite(slope) && std::isfinite(offset)) return;
        slope = 0;  // any code may reach the bound
        offset = std::numeric_limits<float>::infinity();
    }

    // The same test for sums of at most 15 bits, by the high byte of a cosine factor's number, if there is a factor.
    NarrowBound narrow(float bound, bool has_factor) const {
        if (!(bound > -std::numeric_limits<float>::infinity()) || !(slope > 0)) return {};
        const double least = double(bound) - 2e-6 * std::fabs(double(bound));
        const double each = has_factor ? least * 0x1p-6 / slope : 0;  // of a high byte; the low one adds less
        const double first = ((has_factor ? 0 : least) - offset) / slope + std::min(0.0, each) - 1;
        const double steps = std::floor(each * 512);
        if (!(steps >= INT16_MIN) || !(first > INT16_MIN)) return {};
        return {int16_t(std::min(std::floor(first), double(INT16_MAX))), int16_t(std::min(steps, double(INT16_MAX)))};
    }
};

// Factors of a block of candidates, and the test whether rounded sums may reach a bound.
template <class Isa>
class BlockTest {
   public:
    explicit BlockTest(const ts_scoring& scoring) : scoring_(scoring) {}

    void enter(const uint8_t* block) {
        if (scoring_.factor == TS_NO_FACTOR) return;
        factor_numbers(scoring_, block, numbers_);
        if (scoring_.factor == TS_COSINE_FACTOR)
            for (int i = 0; i < int(kBlock); ++i) test_[i] = float(numbers_[i]) * 0x1p-14f;
        else
            for (int i = 0; i < int(kBlock); ++i) test_[i] = factor_of(scoring_, uint32_t(numbers_[i]));
    }

    // Places whose score may exceed the bound.
    TOPSIGN_INLINE uint32_t reaching(const int32_t* sums, const UpperBound& upper, float bound) const {
        using V = Vec<float, Isa::kBytes / 4>;
        using Ints = Vec<int32_t, kLanes<V>>;
        const V slope = splat<V>(upper.slope), offset = splat<V>(upper.offset);
        const V least = splat<V>(bound - 2e-6f * std::fabs(bound));
        Ints reached[int(kBlock) / kLanes<V>], all{};
        for (int r = 0; r < int(kBlock) / kLanes<V>; ++r) {
            const V score = convert<V>(load<Ints>(sums + r * kLanes<V>)) * slope + offset;
            if (scoring_.factor == TS_NO_FACTOR) {
                reached[r] = score > least;
            } else {
                const V test = load<V>(test_ + r * kLanes<V>);
                if (scoring_.factor == TS_COSINE_FACTOR)  // a factor of zero always passes
                    reached[r] = (score > least * test) | (test == V{});
                else
                    reached[r] = score * test > least;
            }
            all = all | reached[r];
        }
        if (!any(all)) return 0;
        uint32_t places = 0;
        for (int r = 0; r < int(kBlock) / kLanes<V>; ++r)
            for (int i = 0; i < kLanes<V>; ++i) places |= uint32_t(reached[r][i] & 1) << (r * kLanes<V> + i);
        return places;
    }

    float factor(int place) const {
        return scoring_.factor == TS_NO_FACTOR ? 1.f : factor_of(scoring_, uint32_t(numbers_[place]));
    }

   private:
    const ts_scoring& scoring_;
    alignas(64) int32_t numbers_[kBlock];
    alignas(64) float test_[kBlock];
};

// Offers codes of a block by their exact scores, in ascending order of position; exact(lane) returns the sum.
template <class Collector, class Exact>
TOPSIGN_INLINE void offer_lanes(const ts_scoring& scoring, const ts_queries& queries, int64_t q, const Listed& one,
                                uint32_t lanes, Collector& best, const Exact& exact) {
    for (lanes &= one.mask; lanes; lanes &= lanes - 1) {
        const int lane = count_trailing_zeros(lanes);
        const float score = score_of(scoring, queries, q, exact(lane), factor_at(scoring, one.block, lane));
        if (score > best.bound()) best.offer(score, *one.codes, one.number * kBlock + lane);
    }
}

// The same for places in the order of sums.
template <class Collector, class Exact>
TOPSIGN_INLINE void offer_places(const ts_scoring& scoring, const ts_queries& queries, int64_t q, const Listed& one,
                                 uint32_t places, Collector& best, const Exact& exact) {
    uint32_t lanes = 0;
    for (; places; places &= places - 1) lanes |= uint32_t(1) << code_at(count_trailing_zeros(places));
    offer_lanes(scoring, queries, q, one, lanes, best, [&](int lane) { return exact(split_place(lane)); });
}

// Comparison by tables of nibbles, in two digits: the first finds candidates, both are exact.
template <class Isa>
class NibbleScan {
    using Nibbles = typename Isa::Nibbles;

   public:
    NibbleScan(int n_threads, const ts_scoring& scoring, const ts_queries& queries)
        : scoring_(scoring),
          queries_(queries),
          n_bytes_(plain_bytes(scoring)),
          stride_(Nibbles::table_bytes(n_bytes_)),
          scales_(queries.count),
          tables_(2 * queries.count * stride_ + 64) {
        const int64_t n_tables = 2 * n_bytes_;
        parallel_for(n_threads, queries.count, 20.0 * double(n_tables), [&](int64_t begin, int64_t end) {
            std::vector<int32_t> values(16 * n_tables);
            std::vector<int8_t> high(16 * n_tables), low(16 * n_tables);
            for (int64_t q = begin; q < end; ++q) {
                nibble_values(scoring, queries.values + q * scoring.width, values.data());
                scales_[q] = split_nibbles(values.data(), n_tables, high.data(), low.data());
                Nibbles::lay_out(high.data(), n_bytes_, tables(q, 0));
                Nibbles::lay_out(low.data(), n_bytes_, tables(q, 1));
            }
        });
        for (int64_t q = 0; q < queries.count; ++q) bounds_.emplace_back(queries, q, scales_[q]);
    }

    static constexpr int kTile = Nibbles::kTile;
    double cost(int64_t n_queries) const { return double(n_bytes_) * (0.2 + 0.8 * double(n_queries)); }  // of a block

    // State of a thread: compares blocks with queries [begin, end), whose collectors are best[0], best[1] and so on.
    class Worker {
       public:
        explicit Worker(const NibbleScan& scan) : scan_(scan), test_(scan.scoring_) {}

        template <class Collector>
        void scan(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            // Codes and tables of a part stay in the near caches together.
            const int64_t some_queries = std::max<int64_t>(2, kNear / scan_.stride_);
            const int64_t some_blocks =
                std::max<int64_t>(1, kNear / (scan_.scoring_.code_bytes * kBlock * kTile)) * kTile;
            for (int64_t at = 0; at < n; at += some_blocks)
                for (int64_t q = begin; q < end; q += some_queries)
                    for (int64_t i = at; i < std::min(n, at + some_blocks); i += kTile)
                        tile(list + i, n - i, q, std::min(end, q + some_queries), best + (q - begin));
        }

       private:
        // Compares a tile of n blocks, or fewer, that are left.
        template <class Collector>
        void tile(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            const uint8_t *blocks[kTile], *ahead[kTile];
            for (int64_t i = 0; i < kTile; ++i) {
                blocks[i] = list[std::min(i, n - 1)].block;
                ahead[i] = list[std::min(i + kTile, n - 1)].block;
            }
            nibbles_.enter(blocks, ahead, scan_.n_bytes_);
            n = std::min<int64_t>(kTile, n);
            int64_t q = begin;
            for (; q + Nibbles::kQueries <= end; q += Nibbles::kQueries)
                queries<Nibbles::kQueries>(list, n, q, best + (q - begin));
            for (; q < end; ++q) queries<1>(list, n, q, best + (q - begin));
        }

        template <int N, class Collector>
        void queries(const Listed* list, int64_t n, int64_t q, Collector* best) {
            const uint8_t* tables[N];
            for (int j = 0; j < N; ++j) tables[j] = scan_.tables(q + j, 0);
            alignas(64) int32_t sums[N][kTile][kBlock];
            nibbles_.template sums<N>(tables, sums);
            for (int j = 0; j < N; ++j) {
                bool is_exact = false;
                for (int64_t i = 0; i < n; ++i) {
                    test_.enter(list[i].block);
                    const uint32_t places = test_.reaching(sums[j][i], scan_.bounds_[q + j], best[j].bound());
                    if (!places) continue;
                    if (!is_exact) add_low(q + j, sums[j]);
                    is_exact = true;
                    offer_places(scan_.scoring_, scan_.queries_, q + j, list[i], places, best[j],
                                 [&](int place) { return exact_[i][place]; });
                }
            }
        }

        // Computes the exact sums of a tile from those of the first digits.
        void add_low(int64_t q, const int32_t (*sums)[kBlock]) {
            const auto step = int32_t(scan_.scales_[q].step);
            int32_t low[1][kTile][kBlock] = {};
            const uint8_t* const tables[1] = {scan_.tables(q, 1)};
            if (scan_.scales_[q].margin > 0) nibbles_.template sums<1>(tables, low);
            for (int i = 0; i < kTile; ++i)
                for (int place = 0; place < int(kBlock); ++place)
                    exact_[i][place] = step * sums[i][place] + low[0][i][place];
        }

        static constexpr int64_t kNear = 1 << 18;  // bytes

        const NibbleScan& scan_;
        Nibbles nibbles_;
        BlockTest<Isa> test_;
        alignas(64) int32_t exact_[kTile][kBlock];
    };

   private:
    // Tables of a digit, which start on cache lines.
    uint8_t* tables(int64_t q, int digit) { return const_cast<uint8_t*>(std::as_const(*this).tables(q, digit)); }
    const uint8_t* tables(int64_t q, int digit) const {
        const auto first = reinterpret_cast<uintptr_t>(tables_.data());
        return tables_.data() + (64 - first % 64) % 64 + (digit * queries_.count + q) * stride_;
    }

    const ts_scoring& scoring_;
    const ts_queries& queries_;
    const int64_t n_bytes_, stride_;
    std::vector<TableScale> scales_;
    std::vector<uint8_t> tables_;
    std::vector<UpperBound> bounds_;
};

// Comparison of rings by tables of bytes. Collectors that take rounded scores get those of all codes that exceed their
// bound; others get exact scores.
template <class Isa>
class RingScan {
    using Rings = typename Isa::Rings;

   public:
    RingScan(int n_threads, const ts_scoring& scoring, const ts_queries& queries, bool is_rounded = false)
        : scoring_(scoring),
          queries_(queries),
          n_steps_(scoring.ring->n_steps),
          exact_(new int32_t[queries.count * n_steps_ * kWindows]),
          tables_(new uint8_t[queries.count * n_steps_ * kWindows]) {
        std::vector<TableScale> scales(queries.count);
        parallel_for(n_threads, queries.count, 150.0 * double(n_steps_), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q) {
                int32_t* const values = exact_.get() + q * n_steps_ * kWindows;
                ring_values<Isa>(*scoring.ring, queries.values + q * scoring.width, values);
                scales[q] = round_ring<Isa>(values, n_steps_, tables_.get() + q * n_steps_ * kWindows);
                if (is_rounded) scales[q].margin = 0;
            }
        });
        for (int64_t q = 0; q < queries.count; ++q) bounds_.emplace_back(queries, q, scales[q]);
    }

    static constexpr int kTile = Rings::kTile;
    double cost(int64_t n_queries) const { return Isa::kRingCost * double(n_steps_ * n_queries); }

    float exact_score(int64_t q, const uint8_t* block, int lane) const {
        return score_of(scoring_, queries_, q, exact_sum(q, block, lane), factor_at(scoring_, block, lane));
    }

    class Worker {
       public:
        explicit Worker(const RingScan& scan) : scan_(scan), test_(scan.scoring_) {}

        template <class Collector>
        void scan(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            // Tables of some queries stay in the near caches.
            const int64_t some_queries = std::max<int64_t>(1, kNear / (scan_.n_steps_ * kWindows));
            for (int64_t q = begin; q < end; q += some_queries)
                for (int64_t at = 0; at < n; at += kTile)
                    tile(list + at, n - at, q, std::min(end, q + some_queries), best + (q - begin));
        }

       private:
        static constexpr int64_t kNear = 1 << 18;     // bytes
        static constexpr int64_t kNarrowSteps = 256;  // whose sums have at most 15 bits

        // Compares a tile of n blocks, or fewer, that are left.
        template <class Collector>
        void tile(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            const uint8_t *blocks[kTile], *ahead[kTile];
            for (int64_t i = 0; i < kTile; ++i) {
                blocks[i] = list[std::min(i, n - 1)].block;
                ahead[i] = list[std::min(i + Rings::kAhead * kTile, n - 1)].block;
            }
            const ts_scoring& scoring = scan_.scoring_;
            const bool is_narrow = Rings::kNarrow && scan_.n_steps_ <= kNarrowSteps && scoring.factor != TS_LOG_FACTOR;
            for (int64_t q = begin; q < end; ++q) {
                const int64_t first = q * scan_.n_steps_ * kWindows;
                const uint8_t* const tables = scan_.tables_.get() + first;
                const UpperBound& upper = scan_.bounds_[q];
                Collector& collector = best[q - begin];
                if (is_narrow) {
                    const bool has_factor = scoring.factor == TS_COSINE_FACTOR;
                    uint32_t lanes[kTile];
                    alignas(64) uint16_t sums[kTile][kBlock];
                    Rings::reaching(blocks, ahead, scan_.n_steps_ / 2, tables,
                                    upper.narrow(collector.bound(), has_factor),
                                    has_factor ? scoring.code_bytes - 1 : -1, lanes, sums);
                    for (int64_t i = 0; i < std::min<int64_t>(kTile, n); ++i)
                        if (lanes[i] & list[i].mask)
                            offer(list[i], lanes[i], q, collector,
                                  [&](int lane) { return Rings::sum_of(sums, i, lane); });
                    continue;
                }
                alignas(64) int32_t sums[kTile][kBlock];
                Rings::sums(blocks, ahead, scan_.n_steps_ / 2, tables, sums);
                for (int64_t i = 0; i < std::min<int64_t>(kTile, n); ++i) {
                    test_.enter(list[i].block);
                    uint32_t lanes = 0, places = test_.reaching(sums[i], upper, collector.bound());
                    for (; places; places &= places - 1) lanes |= uint32_t(1) << code_at(count_trailing_zeros(places));
                    if (lanes)
                        offer(list[i], lanes, q, collector, [&](int lane) { return sums[i][split_place(lane)]; });
                }
            }
        }

        template <class Collector, class Rounded>
        void offer(const Listed& one, uint32_t lanes, int64_t q, Collector& best, const Rounded& rounded) {
            if constexpr (Collector::kRounded) {
                const UpperBound& upper = scan_.bounds_[q];
                for (lanes &= one.mask; lanes; lanes &= lanes - 1) {
                    const int lane = count_trailing_zeros(lanes);
                    const float score = (float(rounded(lane)) * upper.slope + upper.middle) *
                                        factor_at(scan_.scoring_, one.block, lane);
                    if (score > best.bound()) best.offer(score, *one.codes, one.number * kBlock + lane);
                }
            } else {
                offer_lanes(scan_.scoring_, scan_.queries_, q, one, lanes, best,
                            [&](int lane) { return scan_.exact_sum(q, one.block, lane); });
            }
        }

        const RingScan& scan_;
        BlockTest<Isa> test_;
    };

   private:
    int32_t exact_sum(int64_t q, const uint8_t* block, int lane) const {
        const int32_t* const values = exact_.get() + q * n_steps_ * kWindows;
        int32_t sum = 0;
        for_each_window(
            n_steps_, [&](int64_t b) { return uint32_t(block[b * kBlock + lane]); },
            [&](int64_t step, uint32_t window) { sum += values[step * kWindows + window]; });
        return sum;
    }

    const ts_scoring& scoring_;
    const ts_queries& queries_;
    const int64_t n_steps_;
    std::unique_ptr<int32_t[]> exact_;
    std::unique_ptr<uint8_t[]> tables_;
    std::vector<UpperBound> bounds_;
};

// Comparison by products with decoded blocks.
template <class Isa>
class ProductScan {
   public:
    ProductScan(int, const ts_scoring& scoring, const ts_queries& queries)
        : scoring_(scoring), queries_(queries), digits_(scoring, queries) {
        std::vector<int32_t> most(scoring.width, 1);  // the largest level of each coordinate
        if (scoring.kind == TS_RING) {
            const ts_ring& ring = *scoring.ring;
            for (int64_t s = 0; s < ring.n_steps; ++s)
                for (int64_t c = ring.first[s]; c < ring.first[s + 1]; ++c) {
                    const int8_t* const column = ring.columns + ring.books[s] + (c - ring.first[s]) * kWindows;
                    for (int w = 0; w < kWindows; ++w) most[c] = std::max<int32_t>(most[c], std::abs(column[w]));
                }
        }
        const int64_t n_levels = scoring.kind == TS_KEPT ? scoring.layout.n_bits : scoring.width;  // that are not 0
        for (int64_t q = 0; q < queries.count; ++q) {
            TableScale scale;
            scale.step = 256;
            std::vector<int32_t> errors(scoring.width), values(scoring.width);
            for (int64_t i = 0; i < scoring.width; ++i) {
                errors[i] = std::abs(digits_.low(q)[i]) * most[i];
                values[i] = std::abs(queries.values[q * scoring.width + i]) * most[i];
            }
            scale.margin = sum_largest(errors, n_levels);
            scale.largest = sum_largest(values, n_levels);
            bounds_.emplace_back(queries, q, scale);
        }
    }

    static constexpr int kTile = 1;
    double cost(int64_t n_queries) const {
        return double(scoring_.width) * (16 + Isa::kProductCost * double(n_queries));
    }

    class Worker {
       public:
        explicit Worker(const ProductScan& scan) : scan_(scan), tile_(scan.scoring_), test_(scan.scoring_) {}

        template <class Collector>
        void scan(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            for (int64_t i = 0; i < n; ++i) {
                tile_.enter(list[i].block);
                test_.enter(list[i].block);
                int64_t q = begin;
                for (; q + kQueries <= end; q += kQueries) queries<kQueries>(list[i], q, best + (q - begin));
                for (; q < end; ++q) queries<1>(list[i], q, best + (q - begin));
            }
        }

       private:
        static constexpr int kQueries = Isa::kProductQueries;

        template <int N, class Collector>
        void queries(const Listed& one, int64_t q, Collector* best) {
            const int8_t* rows[N];
            int32_t totals[N];
            for (int j = 0; j < N; ++j) {
                rows[j] = scan_.digits_.high(q + j);
                totals[j] = scan_.digits_.high_sum(q + j);
            }
            alignas(64) int32_t sums[N][kBlock];
            tile_.template sums<N>(rows, totals, sums);
            for (int j = 0; j < N; ++j) {
                const uint32_t places = test_.reaching(sums[j], scan_.bounds_[q + j], best[j].bound());
                if (!places) continue;
                alignas(64) int32_t low[1][kBlock];
                tile_.template sums<1>({scan_.digits_.low(q + j)}, {scan_.digits_.low_sum(q + j)}, low);
                offer_places(scan_.scoring_, scan_.queries_, q + j, one, places, best[j],
                             [&](int place) { return 256 * sums[j][place] + low[0][place]; });
            }
        }

        const ProductScan& scan_;
        ProductTile<Isa> tile_;
        BlockTest<Isa> test_;
    };

   private:
    static double sum_largest(std::vector<int32_t>& values, int64_t n) {
        std::nth_element(values.begin(), values.begin() + (n - 1), values.end(), std::greater<>());
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += values[i];
        return sum;
    }

    const ts_scoring& scoring_;
    const ts_queries& queries_;
    const Digits digits_;
    std::vector<UpperBound> bounds_;
};

// Exact comparison of adaptive codes with few queries.
template <class Isa>
class KeptScan {
   public:
    KeptScan(int, const ts_scoring& scoring, const ts_queries& queries) : scoring_(scoring), queries_(queries) {}

    static constexpr int kTile = 1;
    double cost(int64_t n_queries) const { return double(kBlock * scoring_.layout.n_bits) * (2 + double(n_queries)); }

    class Worker {
       public:
        explicit Worker(const KeptScan& scan)
            : scan_(scan),
              test_(scan.scoring_),
              n_bytes_(plain_bytes(scan.scoring_)),
              code_(n_bytes_ + kCodePadding),
              kept_(scan.scoring_.layout.n_bits) {}

        template <class Collector>
        void scan(const Listed* list, int64_t n, int64_t begin, int64_t end, Collector* best) {
            const ts_scoring& scoring = scan_.scoring_;
            for (const Listed* one = list; one != list + n; ++one) {
                test_.enter(one->block);
                for (uint32_t lanes = one->mask; lanes; lanes &= lanes - 1) {
                    const int lane = count_trailing_zeros(lanes);
                    read_code(one->block, lane, n_bytes_, code_.data());
                    unpack_code(scoring.layout, code_.data(), kept_.data());
                    for (int64_t q = begin; q < end; ++q) {
                        const float factor = test_.factor(split_place(lane));
                        const float score = score_of(scoring, scan_.queries_, q, sum(q), factor);
                        if (score > best[q - begin].bound())
                            best[q - begin].offer(score, *one->codes, one->number * kBlock + lane);
                    }
                }
            }
        }

       private:
        int32_t sum(int64_t q) const {
            const int16_t* const values = scan_.queries_.values + q * scan_.scoring_.width;
            int32_t sum = 0;
            for (const uint32_t one : kept_) {
                const int32_t value = values[one & ~kNegative];
                sum += one & kNegative ? -value : value;
            }
            return sum;
        }

        const KeptScan& scan_;
        BlockTest<Isa> test_;
        const int64_t n_bytes_;
        std::vector<uint8_t> code_;
        std::vector<uint32_t> kept_;
    };

   private:
    const ts_scoring& scoring_;
    const ts_queries& queries_;
};

// Whether byte tables of these queries cost more than products with so many blocks. Long rings, whose sums need more
// than 16 bits and whose tables leave the near caches, are compared slowly.
template <class Isa>
bool tables_cost_more(const ts_scoring& scoring, const ts_queries& queries, int64_t n_blocks) {
    const auto n_queries = double(queries.count), width = double(scoring.width);
    const double products = 2 * double(n_blocks) * (16 + Isa::kProductCost * n_queries) + 20 * n_queries;
    const double tables = 300 + (scoring.ring->n_steps > 256 ? 5 * double(n_blocks) : 0);
    return tables * double(scoring.ring->n_steps) * n_queries > products * width;
}

// Calls use(scan) with the faster comparison of these queries with so many blocks.
template <class Isa, class Use>
auto with_scan(int n_threads, const ts_scoring& scoring, const ts_queries& queries, int64_t n_blocks, const Use& use) {
    constexpr int64_t kFewKept = 8, kSparse = 128;  // queries; locations of the pool for each one that is kept
    if (scoring.kind == TS_SIGNS || scoring.kind == TS_GROUPS) return use(NibbleScan<Isa>(n_threads, scoring, queries));
    if (scoring.kind == TS_RING && queries.count <= Isa::kFewRings &&
        !tables_cost_more<Isa>(scoring, queries, n_blocks))
        return use(RingScan<Isa>(n_threads, scoring, queries));
    if (scoring.kind == TS_KEPT &&
        (queries.count < kFewKept || scoring.layout.n_pool > kSparse * scoring.layout.n_bits))
        return use(KeptScan<Isa>(n_threads, scoring, queries));
    return use(ProductScan<Isa>(n_threads, scoring, queries));
}

// Scans all codes in parallel; collectors are copies of `empty`.
template <class Scan, class Collector>
Parts<Collector> scan_all(int n_threads, const ts_scoring& scoring, const ts_code_ranges& codes, const Scan& scan,
                          const std::vector<Collector>& empty) {
    constexpr int64_t kListed = 256;  // blocks between two looks at the bounds of other threads
    const auto n_queries = int64_t(empty.size());
    const BlockRanges ranges(codes);
    const double each = scan.cost(n_queries);
    const int n_slots = worthwhile_threads(n_threads, each * double(ranges.count()));
    Parts<Collector> parts(n_slots, empty);
    const bool ascending = ranges.ascending();
    for (auto& part : parts)
        for (auto& collector : part) collector.begin(n_slots, ascending);
    Pieces pieces(ranges.count(), n_slots, std::max<int64_t>(Scan::kTile, int64_t(2 * grain / each) + 1));
    run_slots(n_slots, [&](int slot) {
        typename Scan::Worker worker(scan);
        std::vector<Listed> list;
        Collector* const best = parts[slot].data();
        for (int64_t first, last; pieces.take(first, last);)
            ranges.visit(first, last, [&](const ts_codes& some, int64_t begin, int64_t end) {
                for (; begin < end; begin += kListed) {
                    list.clear();
                    for (int64_t b = begin; b < std::min(end, begin + kListed); ++b)
                        if (const uint32_t mask = living(some, b))
                            list.push_back({some.planes + b * scoring.code_bytes * kBlock, &some, b, mask});
                    for (int64_t q = 0; q < n_queries; ++q) best[q].refresh();
                    if (!list.empty()) worker.scan(list.data(), int64_t(list.size()), 0, n_queries, best);
                }
            });
        for (auto& collector : parts[slot]) collector.finish();
    });
    return parts;
}

// Calls search(some of the queries, the first of them), so that tables take a bounded amount of memory.
template <class Search>
void for_some_queries(const ts_scoring& scoring, const ts_queries& queries, const Search& search) {
    constexpr int64_t kTableBytes = int64_t(1) << 26;
    const int64_t each = scoring.kind == TS_RING ? 5 * kWindows * scoring.ring->n_steps : 64 * scoring.code_bytes + 512;
    const int64_t most = std::max<int64_t>(1, kTableBytes / std::max(each, 2 * scoring.width));
    for (int64_t first = 0; first < queries.count; first += most)
        search(ts_queries{queries.values + first * scoring.width, queries.scales + first, queries.constants + first,
                          std::min(most, queries.count - first)},
               first);
}

template <class Isa>
void rank(int n_threads, const ts_scoring& scoring, const ts_code_ranges& codes, const ts_queries& queries,
          const ts_best& best) {
    for_some_queries(scoring, queries, [&](const ts_queries& some, int64_t first) {
        Tops tops(some.count, best.k);
        with_scan<Isa>(n_threads, scoring, some, BlockRanges(codes).count(),
                       [&](const auto& scan) { scan_all(n_threads, scoring, codes, scan, tops.collectors()); });
        tops.write(best.values + first * best.k, best.rows + first * best.k);
    });
}

template <class Isa>
void within(int n_threads, const ts_scoring& scoring, const ts_code_ranges& codes, const ts_queries& queries,
            const ts_found& found) {
    int64_t total = 0;
    for_some_queries(scoring, queries, [&](const ts_queries& some, int64_t first) {
        const std::vector<Within> empty(found.bounds + first, found.bounds + first + some.count);
        with_scan<Isa>(n_threads, scoring, some, BlockRanges(codes).count(), [&](const auto& scan) {
            write_within(scan_all(n_threads, scoring, codes, scan, empty), first, found, total);
        });
    });
}

// Writes the scores of all codes for one query; codes whose score is -inf are not offered.
class Written {
   public:
    static constexpr bool kRounded = false;
    explicit Written(float* out) : out_(out) {}
    void begin(int, bool) {}
    void refresh() {}
    void finish() {}
    float bound() const { return -std::numeric_limits<float>::infinity(); }
    void offer(float value, const ts_codes&, int64_t position) { out_[position] = value; }

   private:
    float* out_;
};

// All scores: by tables for few queries, otherwise by products of both digits.
template <class Isa>
void scores(int n_threads, const ts_scoring& scoring, const ts_codes& codes, const ts_queries& queries, float* out) {
    constexpr int64_t kFew = 4;
    if (queries.count <= kFew) {
        std::fill(out, out + queries.count * codes.count, -std::numeric_limits<float>::infinity());
        std::vector<Written> empty;
        for (int64_t q = 0; q < queries.count; ++q) empty.emplace_back(out + q * codes.count);
        with_scan<Isa>(n_threads, scoring, queries, n_blocks(codes),
                       [&](const auto& scan) { scan_all(n_threads, scoring, {&codes, 1}, scan, empty); });
        return;
    }
    const Digits digits(scoring, queries);
    const double each = double(scoring.width) * (16 + 2 * Isa::kProductCost * double(queries.count));
    parallel_for(n_threads, n_blocks(codes), each, [&](int64_t begin, int64_t end) {
        ProductTile<Isa> tile(scoring);
        BlockTest<Isa> test(scoring);
        float factors[kBlock];
        for (int64_t b = begin; b < end; ++b) {
            const uint8_t* const block = codes.planes + b * scoring.code_bytes * kBlock;
            const int64_t first = b * kBlock, n = std::min(kBlock, codes.count - first);
            tile.enter(block);
            test.enter(block);
            for (int place = 0; place < int(kBlock); ++place) factors[place] = test.factor(place);
            for (int64_t q = 0; q < queries.count; ++q) {
                alignas(64) int32_t sums[2][kBlock];
                const int8_t* const rows[2] = {digits.high(q), digits.low(q)};
                const int32_t totals[2] = {digits.high_sum(q), digits.low_sum(q)};
                tile.template sums<2>(rows, totals, sums);
                float values[kBlock];
                for (int place = 0; place < int(kBlock); ++place)
                    values[place] =
                        score_of(scoring, queries, q, 256 * sums[0][place] + sums[1][place], factors[place]);
                float* const to = out + q * codes.count + first;
                for (int64_t lane = 0; lane < n; ++lane) to[lane] = values[split_place(int(lane))];
            }
        }
    });
}

}  // namespace
}  // namespace topsign
