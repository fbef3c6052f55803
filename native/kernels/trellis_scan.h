// Scans of trellis codes: blocks of entries are decoded together and multiplied by 8-bit queries.
//
// Sums of products are exact integers; scores are (sum * scale + constant) * weight in float32, in that order, on every
// path. A query of two digits has two rows of bytes, whose sums are combined first.
#pragma once

#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>

#include "../core/collect.h"
#include "trellis_block.h"

namespace topsign {
namespace {

// Queries padded to whole groups of coordinates, with one or two rows per query.
class TrellisQueries {
   public:
    TrellisQueries() = default;
    TrellisQueries(const ts_trellis_queries& queries, int64_t n_coded, int64_t width)
        : count(queries.count), n_digits(digits_of(queries)), fine_bits(int(queries.fine_bits)), width(width) {
        values_.resize(count * n_digits * width);
        middle.resize(count * n_digits);
        for (int64_t row = 0; row < count * n_digits; ++row) {
            const int64_t q = row / n_digits;
            const int8_t* const from = (row % n_digits ? queries.fine : queries.values) + q * n_coded;
            std::copy(from, from + n_coded, values_.begin() + row * width);
            for (int64_t i = 0; i < n_coded; ++i) middle[row] -= kMiddle * from[i];
        }
        scales.assign(queries.scales, queries.scales + count);
        constants.assign(queries.constants, queries.constants + count);
    }

    static int64_t digits_of(const ts_trellis_queries& queries) { return queries.fine ? 2 : 1; }
    static int64_t rows_of(const ts_trellis_queries& queries) { return queries.count * digits_of(queries); }
    const int8_t* values(int64_t row) const { return values_.data() + row * width; }

    // Copies the chosen queries.
    void take(const TrellisQueries& from, const int32_t* chosen, int64_t n) {
        count = n;
        n_digits = from.n_digits;
        fine_bits = from.fine_bits;
        width = from.width;
        values_.resize(n * n_digits * width);
        middle.resize(n * n_digits);
        scales.resize(n);
        constants.resize(n);
        for (int64_t i = 0; i < n; ++i) {
            const int64_t row = chosen[i] * n_digits;
            std::copy(from.values(row), from.values(row + n_digits), values_.begin() + i * n_digits * width);
            std::copy_n(from.middle.begin() + row, n_digits, middle.begin() + i * n_digits);
            scales[i] = from.scales[chosen[i]];
            constants[i] = from.constants[chosen[i]];
        }
    }

    int64_t count = 0, n_digits = 1;
    int fine_bits = 0;
    int64_t width = 0;            // of a row
    std::vector<int32_t> middle;  // offset of each row's sum, because levels are stored as bytes
    std::vector<float> scales, constants;

   private:
    std::vector<int8_t> values_;
};

// Decoding tables and queries of a cell.
struct TrellisCell {
    explicit TrellisCell(const ts_trellis_cell& cell)
        : plan(cell.trellis), queries(cell.queries, cell.trellis.n_coded, 4 * plan.n_groups) {}

    const TrellisPlan plan;
    const TrellisQueries queries;
};

// The cells of a search, each prepared by the first thread that needs it.
class TrellisCells {
   public:
    TrellisCells(const ts_trellis_cell* asked, int64_t n) : asked_(asked), begun_(n), cells_(n) {}

    int64_t size() const { return int64_t(cells_.size()); }
    const TrellisCell& operator[](int64_t cell) {
        std::call_once(begun_[cell], [&] { cells_[cell].emplace(asked_[cell]); });
        return *cells_[cell];
    }

   private:
    const ts_trellis_cell* const asked_;
    std::deque<std::once_flag> begun_;
    std::vector<std::optional<TrellisCell>> cells_;
};

// Codes of a range that are decoded together.
struct RangeCodes {
    const ts_trellis_range& range;
    int64_t code_bytes, first, n;

    int64_t position(int64_t i) const { return range.positions ? range.positions[first + i] : first + i; }
    const uint8_t* operator()(int64_t i) const { return range.data + position(i) * code_bytes; }
    const float* fractions() const { return range.fractions; }
    bool takes_part(int64_t position) const { return is_alive(range.alive, position); }

    // Prefetches codes at scattered positions, which the hardware cannot predict.
    TOPSIGN_INLINE void prefetch() const {
        if (!range.positions) return;
        for (int64_t i = 0; i < n; ++i) {
            prefetch_line((*this)(i));
            prefetch_line((*this)(i) + code_bytes - 1);
        }
    }
};

// Scanner of one thread.
template <class Isa>
class TrellisScan {
    using Block = TrellisBlock<Isa>;
    using V = typename Block::V;
    using Ints = typename Block::Ints;
    using Reals = typename Block::Reals;
    static constexpr int kEntries = Block::kEntries, kRegisters = Block::kRegisters, kWidth = Block::kWidth;
    // Blocks after which bounds that other threads have lowered are read again: after the first block, and every so
    // many blocks. Without this, each thread would offer about as many codes as a single thread does in all.
    static constexpr int64_t kRefreshed = 16;

   public:
    // Offers codes [begin, end) of a range.
    template <class Collector>
    void scan(const TrellisCell& cell, const ts_trellis_range& range, int64_t begin, int64_t end, Collector* best) {
        const int64_t code_bytes = cell.plan.trellis.code_bytes;
        scan_codes(
            cell.plan, cell.queries, begin, end,
            [&](int64_t first, int64_t n) { return RangeCodes{range, code_bytes, first, n}; }, best);
    }

    // Offers codes [begin, end) to these queries; make(first, n) returns n of them, like RangeCodes.
    template <class MakeCodes, class Collector>
    void scan_codes(const TrellisPlan& plan, const TrellisQueries& queries, int64_t begin, int64_t end,
                    const MakeCodes& make, Collector* best) {
        enter(plan, queries);
        alignas(64) float weights[kEntries];
        for (int64_t first = begin; first < end; first += kEntries) {
            const auto codes = make(first, std::min<int64_t>(kEntries, end - first));
            block_.decode(codes, codes.n);
            if (first + kEntries < end)
                make(first + kEntries, std::min<int64_t>(kEntries, end - first - kEntries)).prefetch();
            weigh(codes, plan.trellis.code_bytes, weights);
            if ((first - begin) % (kRefreshed * kEntries) == kEntries)
                for (int64_t q = 0; q < queries.count; ++q) best[q].refresh();
            if (queries.n_digits == 2)
                offer_tiles<2>(codes, weights, best);
            else
                offer_tiles<1>(codes, weights, best);
        }
    }

    // Sums of all queries with codes [begin, end), into (n_queries, codes.count).
    void write_sums(const TrellisCell& cell, const ts_trellis_codes& codes, int64_t begin, int64_t end, int32_t* out) {
        enter(cell.plan, cell.queries);
        const int64_t code_bytes = cell.plan.trellis.code_bytes;
        for (int64_t first = begin; first < end; first += kEntries) {
            const int64_t n = std::min<int64_t>(kEntries, end - first);
            block_.decode([&](int64_t i) { return codes.data + (first + i) * code_bytes; }, n);
            for (int64_t q = 0; q < cell.queries.count; ++q) {
                int32_t* const to = out + q * codes.count + first;
                if (cell.queries.n_digits == 2)
                    write_sums_of<2>(q, n, to);
                else
                    write_sums_of<1>(q, n, to);
            }
        }
    }

   private:
    void enter(const TrellisPlan& plan, const TrellisQueries& queries) {
        queries_ = &queries;
        block_.enter(plan);
    }

    // Sums of N rows with all entries of the block.
    template <int N>
    TOPSIGN_INLINE void sums(int64_t row, Ints (&sum)[N][kRegisters]) const {
        Ints total[N][kRegisters] = {};
        const int8_t* const values = queries_->values(row);
        const int64_t width = queries_->width;
        for (int64_t g = 0; g < block_.n_groups(); ++g) {
            V levels[kRegisters];
            for (int r = 0; r < kRegisters; ++r) levels[r] = block_.levels(g, r);
            for (int j = 0; j < N; ++j) {
                int32_t four;
                std::memcpy(&four, values + j * width + 4 * g, 4);
                for (int r = 0; r < kRegisters; ++r)
                    total[j][r] = Isa::add_products(total[j][r], levels[r], splat<Ints>(four));
            }
        }
        for (int j = 0; j < N; ++j)
            for (int r = 0; r < kRegisters; ++r)
                sum[j][r] = (total[j][r] << 1) + splat<Ints>(queries_->middle[row + j]);
    }

    // Combines the digits of query j of a tile.
    template <int kDigits, int N>
    TOPSIGN_INLINE Ints whole(const Ints (&sum)[N][kRegisters], int j, int r) const {
        if constexpr (kDigits == 1) return sum[j][r];
        return (sum[2 * j][r] << queries_->fine_bits) + sum[2 * j + 1][r];
    }

    // Offers the entries of the block below the bound to N queries; keys are negated scores.
    template <int N, int kDigits, class Codes, class Collector>
    void offer(int64_t q, const Codes& codes, const float* weights, Collector* best) const {
        const TrellisQueries& queries = *queries_;
        Ints sum[N * kDigits][kRegisters];
        sums<N * kDigits>(q * kDigits, sum);
        for (int j = 0; j < N; ++j) {
            const Reals scale = splat<Reals>(queries.scales[q + j]), constant = splat<Reals>(queries.constants[q + j]);
            const Reals bound = splat<Reals>(best[q + j].bound());
            Reals keys[kRegisters];
            Ints reached{};
            for (int r = 0; r < kRegisters; ++r) {
                const Reals total = convert<Reals>(whole<kDigits>(sum, j, r));
                const Reals score = (total * scale + constant) * load<Reals>(weights + r * kWidth);
                keys[r] = Reals{} - score;
                reached = reached | (keys[r] < bound);
            }
            if (any(reached)) offer_all(keys, codes, best[q + j]);
        }
    }

    // Processes as many rows at a time as fit the registers.
    template <int kDigits, class Codes, class Collector>
    TOPSIGN_INLINE void offer_tiles(const Codes& codes, const float* weights, Collector* best) const {
        constexpr int kQueries = Isa::kTrellisTile / kDigits;
        const int64_t n_queries = queries_->count;
        int64_t q = 0;
        for (; q + kQueries <= n_queries; q += kQueries) offer<kQueries, kDigits>(q, codes, weights, best);
        for (; q < n_queries; ++q) offer<1, kDigits>(q, codes, weights, best);
    }

    template <int kDigits>
    void write_sums_of(int64_t q, int64_t n, int32_t* out) const {
        Ints sum[kDigits][kRegisters];
        sums<kDigits>(q * kDigits, sum);
        for (int lane = 0; lane < kEntries; ++lane)
            if (block_.entry(lane) < n) out[block_.entry(lane)] = whole<kDigits>(sum, 0, lane / kWidth)[lane % kWidth];
    }

    // Writes the factors of the sums in lane order.
    template <class Codes>
    void weigh(const Codes& codes, int64_t code_bytes, float* weights) const {
        block_.inverse_norms(weights);
        const float* const fractions = codes.fractions();
        if (!fractions) return;
        for (int lane = 0; lane < kEntries; ++lane) {
            const int entry = block_.entry(lane);
            if (entry < codes.n) weights[lane] *= norm_of(fractions, codes(entry) + code_bytes - 2);
        }
    }

    static float norm_of(const float* fractions, const uint8_t* packed) {
        const uint32_t steps = uint32_t(packed[0] | packed[1] << 8);
        const float power = cast<float>(((steps >> 9) + 127 - 64) << 23);  // of two
        return steps == 0 ? 0.f : fractions[steps & 511] * power;
    }

    // In ascending order of position, as collectors require.
    template <class Codes, class Collector>
    TOPSIGN_OUTLINE void offer_all(const Reals* keys, const Codes& codes, Collector& best) const {
        float by_entry[kEntries];
        for (int lane = 0; lane < kEntries; ++lane) by_entry[block_.entry(lane)] = keys[lane / kWidth][lane % kWidth];
        int64_t kept[kEntries], n = 0;
        for (int64_t e = 0; e < codes.n; ++e)
            if (by_entry[e] < best.bound() && codes.takes_part(codes.position(e))) kept[n++] = e;
        const float last = n > best.wanted() ? wanted_key(by_entry, kept, n, best.wanted()) : best.bound();
        for (int64_t i = 0; i < n; ++i)
            if (by_entry[kept[i]] <= last && by_entry[kept[i]] < best.bound())
                best.offer(by_entry[kept[i]], codes.position(kept[i]));
    }

    // The key of the last of the `wanted` best of these entries; entries with larger keys cannot be in the result.
    static float wanted_key(const float* by_entry, const int64_t* kept, int64_t n, int64_t wanted) {
        float sorted[kEntries];
        for (int64_t i = 0; i < n; ++i) sorted[i] = by_entry[kept[i]];
        std::nth_element(sorted, sorted + (wanted - 1), sorted + n);
        return sorted[wanted - 1];
    }

    const TrellisQueries* queries_ = nullptr;
    Block block_;
};

// Approximate nanoseconds per entry for this many rows of queries.
inline double decode_cost(const ts_trellis& trellis, int64_t n_rows = 0) {
    return double(trellis.n_coded) * (0.25 + 0.015 * double(n_rows));
}

// Calls body(block, first, n) for each decoded block of codes.
template <class Isa, class Body>
void each_block(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, const Body& body) {
    constexpr int64_t kEntries = TrellisBlock<Isa>::kEntries;
    const TrellisPlan plan(trellis);
    parallel_for(
        n_threads, ceil_div(codes.count, kEntries), kEntries * decode_cost(trellis), [&](int64_t begin, int64_t end) {
            TrellisBlock<Isa> block;
            block.enter(plan);
            for (int64_t first = begin * kEntries; first < std::min(codes.count, end * kEntries); first += kEntries) {
                const int64_t n = std::min(kEntries, codes.count - first);
                block.decode([&](int64_t i) { return codes.data + (first + i) * trellis.code_bytes; }, n);
                body(block, first, n);
            }
        });
}

template <class Isa>
void trellis_decode(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, int8_t* out) {
    using Block = TrellisBlock<Isa>;
    each_block<Isa>(n_threads, trellis, codes, [&](const Block& block, int64_t first, int64_t n) {
        for (int lane = 0; lane < Block::kEntries; ++lane)
            if (block.entry(lane) < n)
                for (int64_t i = 0; i < trellis.n_coded; ++i)
                    out[(first + block.entry(lane)) * trellis.n_coded + i] = block.level(i, lane);
    });
}

template <class Isa>
void trellis_weights(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, float* out) {
    using Block = TrellisBlock<Isa>;
    each_block<Isa>(n_threads, trellis, codes, [&](const Block& block, int64_t first, int64_t n) {
        alignas(64) float weights[Block::kEntries];
        block.inverse_norms(weights);
        for (int lane = 0; lane < Block::kEntries; ++lane)
            if (block.entry(lane) < n) out[first + block.entry(lane)] = weights[lane];
    });
}

template <class Isa>
void trellis_sums(int n_threads, const ts_trellis_cell& asked, const ts_trellis_codes& codes, int32_t* out) {
    const TrellisCell cell(asked);
    parallel_for(n_threads, codes.count, decode_cost(asked.trellis, TrellisQueries::rows_of(asked.queries)),
                 [&](int64_t begin, int64_t end) { TrellisScan<Isa>().write_sums(cell, codes, begin, end, out); });
}

// Arrays of codes. Ranges of several cells at positions of one array are scanned together, a part of the array at a
// time, because neighbouring codes belong to different cells, and would otherwise be read from memory for each cell.
class TrellisArrays {
   public:
    static constexpr int64_t kPart = 16384;  // codes that stay in the second-level cache

    explicit TrellisArrays(const ts_trellis_ranges& codes) : codes_(codes) {
        for (int64_t i = 0; i < codes.n_ranges; ++i)
            if (i == 0 || !same_array(codes.ranges[i - 1], codes.ranges[i])) firsts_.push_back(i);
        firsts_.push_back(codes.n_ranges);
    }

    Ranges all() const {
        Ranges arrays;
        for (size_t a = 0; a + 1 < firsts_.size(); ++a) {
            const ts_trellis_range& first = codes_.ranges[firsts_[a]];
            int64_t count = first.positions ? 0 : first.count;
            for (int64_t i = firsts_[a]; i < firsts_[a + 1]; ++i) {
                const ts_trellis_range& range = codes_.ranges[i];
                if (range.positions && range.count) count = std::max(count, range.positions[range.count - 1] + 1);
            }
            arrays.add({count, first.ids, first.first_row}, firsts_[a + 1] - firsts_[a] == 1);
        }
        return arrays;
    }

    // Calls visit(range, begin, end) for the codes of each range among positions [begin, end) of an array.
    template <class Visit>
    void visit(int64_t array, int64_t begin, int64_t end, const Visit& visit) const {
        const ts_trellis_range& first = codes_.ranges[firsts_[array]];
        if (!first.positions) return visit(first, begin, end);
        for (; begin < end; begin += kPart)
            for (int64_t i = firsts_[array]; i < firsts_[array + 1]; ++i) {
                const ts_trellis_range& range = codes_.ranges[i];
                const int64_t from = place(range, begin), to = place(range, std::min(end, begin + kPart));
                if (from < to) visit(range, from, to);
            }
    }

   private:
    static bool same_array(const ts_trellis_range& a, const ts_trellis_range& b) {
        return a.positions && b.positions && a.data == b.data && a.alive == b.alive && a.ids == b.ids &&
               a.first_row == b.first_row;
    }

    static int64_t place(const ts_trellis_range& range, int64_t position) {
        return std::lower_bound(range.positions, range.positions + range.count, position) - range.positions;
    }

    const ts_trellis_ranges& codes_;
    std::vector<int64_t> firsts_{};  // the first range of each array, and the number of ranges
};

template <class Isa, class Collector>
Parts<Collector> scan_trellis(int n_threads, const ts_trellis_ranges& codes, const std::vector<Collector>& empty) {
    TrellisCells cells(codes.cells, codes.n_cells);
    const TrellisArrays arrays(codes);
    const Ranges ranges = arrays.all();
    double nanoseconds = 0;
    for (int64_t i = 0; i < codes.n_ranges; ++i) {
        const ts_trellis_cell& cell = codes.cells[codes.ranges[i].cell];
        nanoseconds += double(codes.ranges[i].count) * decode_cost(cell.trellis, TrellisQueries::rows_of(cell.queries));
    }
    const double each = std::max(0.25, nanoseconds / double(std::max<int64_t>(1, ranges.n_codes())));
    const auto start = [&] {
        return [&, scan = TrellisScan<Isa>()](int64_t array, int64_t begin, int64_t end, Collector* best) mutable {
            arrays.visit(array, begin, end, [&](const ts_trellis_range& range, int64_t from, int64_t to) {
                scan.scan(cells[range.cell], range, from, to, best);
            });
        };
    };
    return scan_ranges(n_threads, ranges, each, empty, start, 1, 1);
}

template <class Isa>
void rank_trellis(int n_threads, const ts_trellis_ranges& codes, const ts_best& best) {
    const int64_t n_queries = codes.cells[0].queries.count;
    Tops<float> tops(n_queries, best.k);
    scan_trellis<Isa>(n_threads, codes, tops.collectors());
    float* const values = static_cast<float*>(best.values);
    tops.write(values, best.rows);
    for (int64_t i = 0; i < n_queries * best.k; ++i)
        if (best.rows[i] >= 0) values[i] = 0.f - values[i];
}

// Scores that reach the threshold are keys below the next float above its negative.
template <class Isa>
void within_trellis(int n_threads, const ts_trellis_ranges& codes, const ts_found& found) {
    const auto* const thresholds = static_cast<const float*>(found.bounds);
    std::vector<Within<float>> empty;
    for (int64_t q = 0; q < codes.cells[0].queries.count; ++q) empty.emplace_back(just_above(0.f - thresholds[q]));
    const auto parts = scan_trellis<Isa>(n_threads, codes, empty);
    float* const values = static_cast<float*>(found.values);
    int64_t total = 0;
    write_within(parts, 0, found.capacity, total, values, found.rows, found.counts);
    for (int64_t i = 0; i < std::min(total, found.capacity); ++i) values[i] = 0.f - values[i];
}

}  // namespace
}  // namespace topsign
