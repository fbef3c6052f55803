// Bit planes: mismatches of one code with as many queries as a register has bits, or of several codes with fewer
// queries each.
//
// A table row holds one bit per query. Carry-save adders add the rows of a code into planes, the digits of binary
// counters, and the planes are compared with the bounds of all queries at once.
#pragma once

#include "../core/collect.h"
#include "../core/table.h"
#include "rows.h"

namespace topsign {
namespace {

template <class Isa>
using Plane = Vec<uint64_t, Isa::kBytes / 8>;

// Two bits x and y of equal weight are kept as x and x ^ y, so that adding two such pairs to a third bit costs 8
// operations.
template <class P>
struct XorPair {
    P x, differ;

    static TOPSIGN_INLINE XorPair of(P x, P y) { return {x, x ^ y}; }

    // Adds both bits of a and of b to the sum; returns the carries, a pair of twice the weight.
    static TOPSIGN_INLINE XorPair add(P& sum, const XorPair& a, const XorPair& b) {
        const P first = sum ^ a.differ;
        const P either = (a.x ^ sum) | a.differ;
        const P carried = (b.x ^ first) & ~b.differ;
        sum = first ^ b.differ;
        return {first ^ carried, either ^ carried};
    }

    // Adds both bits to the sum; returns the carry.
    TOPSIGN_INLINE P add_to(P& sum) const {
        const P carry = (differ & sum) | (x & ~differ);
        sum = sum ^ differ;
        return carry;
    }
};

// Row numbers are scaled: in units of 8 bytes for rows of up to 32 bytes, the largest scale of an x86 address, and in
// units of 16 for rows of 64 bytes.
template <class Isa, int Side>
struct PlaneRow {
    static constexpr int kBytes = Isa::kBytes / Side;
    static constexpr int kShift = kBytes == 8 ? 0 : kBytes == 16 ? 1 : 2;
    static constexpr size_t kUnit = size_t(kBytes >> kShift);

    // A table row of one code, or one of each of Side codes whose rows are `stride` apart.
    template <class Row>
    static TOPSIGN_INLINE Plane<Isa> load(const uint8_t* table, const Row* row, int64_t stride) {
        if constexpr (Side == 1) {
            return topsign::load<Plane<Isa>>(table + *row * kUnit);
        } else if constexpr (kBytes == 8) {
            return words(table, row, stride, std::make_integer_sequence<int, Side>());
        } else {
            static_assert(Side == 2);
            return Isa::join(table + row[0] * kUnit, table + row[stride] * kUnit);
        }
    }

   private:
    template <class Row, int... I>
    static TOPSIGN_INLINE Plane<Isa> words(const uint8_t* table, const Row* row, int64_t stride,
                                           std::integer_sequence<int, I...>) {
        return Plane<Isa>{topsign::load<uint64_t>(table + row[I * stride] * kUnit)...};
    }
};

// Adds 4, 8, 16 or 32 rows into the lowest planes; returns the carry as a pair.
template <class Isa, int Side, int Rows, class Row>
TOPSIGN_INLINE auto add_rows(const uint8_t* table, const Row* rows, int64_t stride, Plane<Isa>* plane) {
    using Pair = typename Isa::template Pair<Plane<Isa>>;
    using At = PlaneRow<Isa, Side>;
    if constexpr (Rows == 4) {
        const Pair a = Pair::of(At::load(table, rows, stride), At::load(table, rows + 1, stride));
        const Pair b = Pair::of(At::load(table, rows + 2, stride), At::load(table, rows + 3, stride));
        return Pair::add(plane[0], a, b);
    } else {
        constexpr int level = Rows == 8 ? 1 : Rows == 16 ? 2 : 3;
        const Pair a = add_rows<Isa, Side, Rows / 2>(table, rows, stride, plane);
        const Pair b = add_rows<Isa, Side, Rows / 2>(table, rows + Rows / 2, stride, plane);
        return Pair::add(plane[level], a, b);
    }
}

template <class P>
TOPSIGN_INLINE void carry_up(P carry, int count, P* plane) {
    for (int p = 0; p < count; ++p) {
        const P next = plane[p] & carry;
        plane[p] = plane[p] ^ carry;
        carry = next;
    }
}

constexpr int kMostPlanes = 26;  // counts up to 2^25

// Adds 32 rows to the counters. If the number of planes is a constant (`Planes`, else 0), they stay in registers.
template <class Isa, int Side, int Planes, class Row>
TOPSIGN_INLINE void add_32_rows(const uint8_t* table, const Row* rows, int64_t stride, int n_planes,
                                Plane<Isa>* planes) {
    const int n = Planes > 0 ? Planes : n_planes;
    Plane<Isa> plane[Planes > 0 ? Planes : kMostPlanes];
    for (int p = 0; p < n; ++p) plane[p] = planes[p];
    const auto sixteens = add_rows<Isa, Side, 32>(table, rows, stride, plane);
    carry_up(sixteens.add_to(plane[4]), n - 5, plane + 5);
    for (int p = 0; p < n; ++p) planes[p] = plane[p];
}

// Counts a group of codes together, 32 rows of each in turn. Rows ascend within a code, so the rows of a turn use a
// small part of the table, which stays in the first-level cache.
constexpr int64_t kPlaneGroup = 256;

template <class Isa, int Side, int Planes, class Row>
void count_group(const uint8_t* table, const Row* rows, int64_t stride, int64_t n_bits, int64_t n_codes, int n_planes,
                 Plane<Isa>* planes) {
    for (int64_t i = 0; i < ceil_div(n_codes, Side) * n_planes; ++i) planes[i] = Plane<Isa>{};
    int64_t j = 0;
    for (; j + 32 <= n_bits; j += 32)
        for (int64_t c = 0; c < n_codes; c += Side)
            add_32_rows<Isa, Side, Planes>(table, rows + c * stride + j, stride, n_planes,
                                           planes + c / Side * n_planes);
    for (int64_t c = 0; c < n_codes; c += Side)
        for (int64_t last = j; last < n_bits; ++last)
            carry_up(PlaneRow<Isa, Side>::load(table, rows + c * stride + last, stride), n_planes,
                     planes + c / Side * n_planes);
}

template <int Bytes>
struct alignas(Bytes) PlaneMemory {
    uint64_t words[Bytes / 8];
};

// Compares the counters with the bounds of all queries, and offers the codes below them.
template <class Isa, int Side, class Collector>
class PlaneBounds {
   public:
    PlaneBounds(int64_t n_bits, int64_t n_queries, Collector* best)
        : n_bits_(n_bits), n_planes_(planes_for(n_bits)), known_(n_queries, -1), best_(best) {}

    static int planes_for(int64_t n_bits) {
        int n = 5;
        while (n_bits + 1 >= int64_t(1) << n) ++n;
        return n <= 8 ? 8 : n <= 10 ? 10 : n;
    }

    int n_planes() const { return n_planes_; }

    // Re-reads the bounds, which other threads lower.
    void refresh() {
        for (int64_t q = 0; q < int64_t(known_.size()); ++q)
            if (best_[q].bound() != known_[q]) set(q);
    }

    // Offers n_codes codes at these positions; a plane holds Side of them.
    void offer(const Plane<Isa>* planes, const int64_t* positions, int64_t n_codes) {
        for (int64_t c = 0; c < n_codes; c += Side) {
            const Plane<Isa>* plane = planes + c / Side * n_planes_;
            Plane<Isa> less{};
            for (int p = 0; p < n_planes_; ++p) {
                const Plane<Isa> bound = load<Plane<Isa>>(bounds_[p]), differ = plane[p] ^ bound;
                less = (differ & bound) | (less & ~differ);
            }
            if (!any(less)) continue;
            uint64_t hits[kWords];
            store(hits, less);
            for (int w = 0; w < kWords && c + w / kSideWords < n_codes; ++w)
                for (uint64_t word = hits[w]; word; word &= word - 1) {
                    const int bit = count_trailing_zeros(word);
                    const int64_t q = w % kSideWords * 64 + bit;
                    int32_t count = 0;
                    for (int p = 0; p < n_planes_; ++p)
                        count |= int32_t(load<uint64_t>(reinterpret_cast<const uint64_t*>(plane + p) + w) >> bit & 1)
                                 << p;
                    best_[q].offer(count, positions[c + w / kSideWords]);
                    set(q);
                }
        }
    }

   private:
    static constexpr int kWords = Isa::kBytes / 8, kSideWords = kWords / Side;  // of a plane, and of one code in it

    void set(int64_t q) {
        known_[q] = best_[q].bound();
        const int64_t bound = std::min<int64_t>(known_[q], n_bits_ + 1);
        const uint64_t bit = uint64_t(1) << (q & 63);
        for (int p = 0; p < n_planes_; ++p)
            for (int w = int(q >> 6); w < kWords; w += kSideWords)
                bounds_[p][w] = (bounds_[p][w] & ~bit) | (bound >> p & 1 ? bit : 0);
    }

    const int64_t n_bits_;
    const int n_planes_;
    std::vector<int64_t> known_;
    Collector* best_;
    alignas(64) uint64_t bounds_[kMostPlanes][kWords] = {};
};

template <class Isa, int Side, class Row, class Collector>
void scan_planes(const ts_codes& codes, const uint8_t* table, int64_t n_queries, int64_t begin, int64_t end,
                 Collector* best) {
    const Layout layout(codes.layout);
    const int64_t n_bits = layout.n_bits, stride = n_bits + RowReader<Isa, Row>::kSpare;
    PlaneBounds<Isa, Side, Collector> bounds(n_bits, n_queries, best);
    const int n_planes = bounds.n_planes();
    const int64_t most = std::min(kPlaneGroup, end - begin);
    std::vector<Row> rows(ceil_div(most, Side) * Side * stride);
    std::vector<PlaneMemory<Isa::kBytes>> memory(ceil_div(most, Side) * n_planes);
    auto* const planes = reinterpret_cast<Plane<Isa>*>(memory.data());
    RowReader<Isa, Row> reader(layout, codes.data, codes.count, PlaneRow<Isa, Side>::kShift);
    for (int64_t next = begin; next < end;) {
        bounds.refresh();
        int64_t group[kPlaneGroup], n_codes = 0;
        for (; next < end && n_codes < kPlaneGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, rows.data() + n_codes * stride);
            group[n_codes++] = next;
        }
        (n_planes == 8 ? count_group<Isa, Side, 8, Row>
         : n_planes == 10
             ? count_group<Isa, Side, 10, Row>
             : count_group<Isa, Side, 0, Row>)(table, rows.data(), stride, n_bits, n_codes, n_planes, planes);
        bounds.offer(planes, group, n_codes);
    }
}

// Table of up to kBytes / Side * 8 queries; a bit is 1 if the query differs from the signed location. `place` gives the
// position of a row. 64 locations are processed for all queries, so rows are complete before they leave the caches.
template <class Isa, int Side, class Place>
void fill_planes(int n_threads, const Layout& layout, const ts_signs& queries, Table& table, const Place& place) {
    constexpr int kWords = Isa::kBytes / Side / 8;
    const int64_t bytes = ceil_div(layout.n_pool, 8);
    const auto fill = [&](int64_t begin) {
        for (int64_t first = 0; first < queries.count; first += 64) {
            const int64_t n_queries = std::min<int64_t>(64, queries.count - first);
            const uint64_t present = n_queries == 64 ? ~uint64_t(0) : (uint64_t(1) << n_queries) - 1;
            uint64_t words[64] = {};
            const size_t n = size_t(std::min<int64_t>(8, bytes - begin / 8));
            for (int64_t q = 0; q < n_queries; ++q)
                std::memcpy(&words[q], queries.bits + (first + q) * bytes + begin / 8, n);
            transpose(words);
            uint64_t* const to = table.words() + first / 64;
            for (int64_t location = begin; location < std::min(layout.n_pool, begin + 64); ++location) {
                to[place(table_row(layout, location, false)) * kWords] = words[location - begin];
                to[place(table_row(layout, location, true)) * kWords] = ~words[location - begin] & present;
            }
        }
    };
    parallel_for(n_threads, ceil_div(layout.n_pool, 64), 15 * double(queries.count), [&](int64_t begin, int64_t end) {
        for (int64_t square = begin; square < end; ++square) fill(64 * square);
    });
}

template <class Isa, int Side, class Collector>
Parts<Collector> search_planes(int n_threads, const CodeRanges& ranges, const ts_signs& queries,
                               const std::vector<Collector>& empty) {
    const Layout layout(ranges.layout());
    Table table(table_rows(layout) * (Isa::kBytes / Side));
    fill_planes<Isa, Side>(n_threads, layout, queries, table, [](int64_t row) { return row; });
    return scan_parts(n_threads, ranges, scan_cost(layout, queries.count), empty,
                      [&](const ts_codes& codes, int64_t begin, int64_t end, Collector* best) {
                          if (narrow_rows(layout, PlaneRow<Isa, Side>::kShift))
                              scan_planes<Isa, Side, uint16_t>(codes, table.bytes(), queries.count, begin, end, best);
                          else
                              scan_planes<Isa, Side, uint32_t>(codes, table.bytes(), queries.count, begin, end, best);
                      });
}

}  // namespace
}  // namespace topsign
