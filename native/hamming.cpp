// Searching by mismatches: the scan that fits the batch, with the best codes kept as it goes.
//
// Few queries: each code's locations are looked up in each query's bits. More: a table row holds a bit of each query,
// 64 or 256 of them, and the rows of a code are added into bit planes by carry-save adders; planes are then compared
// with every query's bound at once.
#include "collect.h"
#include "rows.h"
#include "scan.h"
#include "table.h"

namespace topsign {
namespace {

constexpr int64_t kTile = 256;  // queries that share a table
constexpr int64_t kFew = 6;     // up to so many are looked up one by one: where both ways cost the same at 512 of 8192

struct Codes {
    int path;
    Layout layout;
    const uint8_t* data;
    int64_t count;
    const uint8_t* alive;
};

struct Queries {
    const uint8_t* bits;   // packed signs
    const uint8_t* masks;  // packed, or null; only for the signs layout
    int64_t bytes;
    int64_t count;
};

// Signs of the whole pool: differing bits, under a mask where there is one.
template <class Collector>
void scan_signs(const Codes& codes, const Queries& queries, int64_t begin, int64_t end, Collector* best) {
    const int64_t bytes = queries.bytes;
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = codes.data + i * bytes;
        for (int64_t q = 0; q < queries.count; ++q) {
            const uint8_t* mask = queries.masks ? queries.masks + q * bytes : nullptr;
            const int32_t count = count_differing(code, queries.bits + q * bytes, mask, bytes);
            if (count < best[q].bound()) best[q].offer(count, i);
        }
    }
}

// One code after another, one query after another; a query is a bit for each table row: 1 where the signs differ.
template <class Row, class Collector>
void scan_each(const Codes& codes, const std::vector<uint8_t>& table, int64_t n_queries, int64_t begin, int64_t end,
               Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = table_rows(codes.layout);
    std::vector<Row> rows(n_bits + 32);
    const RowReader<Row> reader(codes.path, codes.layout, codes.data, codes.count);
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

bool differs(const Queries& queries, int64_t q, int64_t location, bool positive) {
    return get_bit(queries.bits + q * queries.bytes, location) != positive;
}

std::vector<uint8_t> byte_table(const Layout& layout, const Queries& queries) {
    const int64_t stride = table_rows(layout);
    std::vector<uint8_t> table(queries.count * stride);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location)
            for (int positive = 0; positive < 2; ++positive)
                table[q * stride + table_row(layout, location, positive)] = differs(queries, q, location, positive);
    return table;
}

#if TOPSIGN_X86
// 64 x 64 bits, transposed in place: bit j of word i becomes bit i of word j.
void transpose(uint64_t (&words)[64]) {
    uint64_t mask = 0x00000000FFFFFFFFu;
    for (int width = 32; width > 0; width /= 2, mask ^= mask << width)
        for (int i = 0; i < 64; i = ((i | width) + 1) & ~width) {
            const uint64_t swapped = ((words[i] >> width) ^ words[i | width]) & mask;
            words[i] ^= swapped << width;
            words[i | width] ^= swapped;
        }
}

// Calls write(row, word) for each table row, bit q of the word being 1 where query q (of at most 64) differs.
template <class Write>
void for_each_row(const Layout& layout, const Queries& queries, const Write& write) {
    const uint64_t present = queries.count == 64 ? ~uint64_t(0) : (uint64_t(1) << queries.count) - 1;
    for (int64_t first = 0; first < layout.n_pool; first += 64) {
        uint64_t words[64] = {};
        const size_t n = size_t(std::min<int64_t>(8, queries.bytes - first / 8));
        for (int64_t q = 0; q < queries.count; ++q) std::memcpy(&words[q], queries.bits + q * queries.bytes + first / 8, n);
        transpose(words);
        for (int64_t location = first; location < std::min(layout.n_pool, first + 64); ++location) {
            write(table_row(layout, location, false), words[location - first]);
            write(table_row(layout, location, true), ~words[location - first] & present);
        }
    }
}

// Bits of one to four queries looked up sixteen locations at a time, straight from the bytes of the fast layout: a
// shuffle fetches each location's byte of the query, a second one the mask of its bit, and the sign bit of the
// comparison, flipped by the code's own, is a mismatch.
template <int N>
TOPSIGN_AVX2_INLINE void count_four(const uint8_t* const (&at)[4], uint64_t present, const uint8_t* const* query,
                                    int64_t offset, int64_t* counts) {
    const __m256i location = _mm256_set1_epi8(0x7f), bit_number = _mm256_set1_epi8(7);
    const __m256i bit_masks = _mm256_set1_epi64x(int64_t(0x8040201008040201u));
    const __m256i first = load_two(at[0], at[1]), second = load_two(at[2], at[3]);
    const __m256i first_mask =
        _mm256_shuffle_epi8(bit_masks, _mm256_and_si256(_mm256_srli_epi16(first, 4), bit_number));
    const __m256i second_mask =
        _mm256_shuffle_epi8(bit_masks, _mm256_and_si256(_mm256_srli_epi16(second, 4), bit_number));
    for (int q = 0; q < N; ++q) {
        const auto* bits = reinterpret_cast<const __m256i*>(query[q] + offset);
        const __m256i a = _mm256_shuffle_epi8(_mm256_loadu_si256(bits), _mm256_and_si256(first, location));
        const __m256i b = _mm256_shuffle_epi8(_mm256_loadu_si256(bits + 1), _mm256_and_si256(second, location));
        const __m256i a_set = _mm256_cmpeq_epi8(_mm256_and_si256(a, first_mask), first_mask);
        const __m256i b_set = _mm256_cmpeq_epi8(_mm256_and_si256(b, second_mask), second_mask);
        const uint32_t low = uint32_t(_mm256_movemask_epi8(_mm256_xor_si256(a_set, first)));
        const uint32_t high = uint32_t(_mm256_movemask_epi8(_mm256_xor_si256(b_set, second)));
        counts[q] += int64_t(_mm_popcnt_u64((uint64_t(high) << 32 | low) & present));
    }
}

TOPSIGN_AVX2_INLINE uint64_t first_of_each(uint32_t counts) {  // as many ones as each byte says, at most 16, in 16 bits
    uint64_t ones = 0;
    for (int b = 0; b < 4; ++b) ones |= uint64_t(_bzhi_u32(0xffff, counts >> 8 * b & 255)) << 16 * b;
    return ones;
}

// Four blocks of which one has more than sixteen locations; rare, so kept out of the way of the registers.
template <int N>
TOPSIGN_AVX2 __attribute__((noinline)) void count_many(const uint8_t* const (&starts)[4], uint32_t packed,
                                                       const uint8_t* const* query, int64_t offset, int64_t* counts) {
    const uint8_t* at[4] = {starts[0], starts[1], starts[2], starts[3]};
    while (packed) {
        count_four<N>(at, first_of_each(packed), query, offset, counts);
        uint32_t left = 0;
        for (int b = 0; b < 4; ++b) {
            const uint32_t count = packed >> 8 * b & 255;
            if (count <= 16) continue;  // a block that is done stays where it is, inside the code
            at[b] += 16;
            left |= (count - 16) << 8 * b;
        }
        packed = left;
    }
}

template <int N>
TOPSIGN_AVX2_INLINE void count_in_blocks(const uint8_t* code, int64_t n_blocks, const uint8_t* const* query,
                                         int32_t* counts) {
    const uint8_t* bytes = code + n_blocks;
    int64_t totals[N] = {};
    for (int64_t block = 0; block < n_blocks; block += 4) {
        uint32_t packed;
        std::memcpy(&packed, code + block, 4);
        if (block + 4 > n_blocks) packed &= (uint32_t(1) << 8 * (n_blocks - block)) - 1;  // the rest is no count
        const uint32_t ends = packed * 0x01010101u;  // of each block, where no sum passes 255
        const bool many = (((packed & 0x7f7f7f7fu) + 0x6f6f6f6fu) | packed) & 0x80808080u;  // a count above 16
        if (!many) {
            const uint8_t* const at[4] = {bytes, bytes + (ends & 255), bytes + (ends >> 8 & 255),
                                          bytes + (ends >> 16 & 255)};
            count_four<N>(at, first_of_each(packed), query, block * 16, totals);
            bytes += ends >> 24;
        } else {
            const uint8_t* at[4];
            for (int b = 0; b < 4; ++b) {
                at[b] = bytes;
                bytes += packed >> 8 * b & 255;
            }
            int64_t some[N] = {};
            count_many<N>(at, packed, query, block * 16, some);
            for (int q = 0; q < N; ++q) totals[q] += some[q];
        }
    }
    for (int q = 0; q < N; ++q) counts[q] = int32_t(totals[q]);
}

template <class Collector>
TOPSIGN_AVX2 void scan_blocks(const Codes& codes, const uint8_t* table, int64_t n_queries, int64_t begin, int64_t end,
                              Collector* best) {
    const int64_t stride = codes.layout.code_bytes(), n_blocks = codes.layout.n_blocks();
    const int64_t query_bytes = ceil_div(n_blocks, 4) * 64;
    std::vector<uint8_t> last(stride + 64);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = codes.data + i * stride;
        if ((i + 1) * stride + 64 > codes.count * stride) {  // near the end of the codes: read from a copy with room
            std::memcpy(last.data(), code, stride);
            code = last.data();
        } else {
            _mm_prefetch(reinterpret_cast<const char*>(code + 4096), _MM_HINT_T0);
        }
        for (int64_t q = 0; q < n_queries;) {
            const uint8_t* query[4];
            int32_t counts[4];
            const int n = n_queries - q >= 4 ? 4 : 1;
            for (int s = 0; s < n; ++s) query[s] = table + (q + s) * query_bytes;
            n == 4 ? count_in_blocks<4>(code, n_blocks, query, counts) : count_in_blocks<1>(code, n_blocks, query, counts);
            for (int s = 0; s < n; ++s, ++q)
                if (counts[s] < best[q].bound()) best[q].offer(counts[s], i);
        }
    }
}

template <class Collector>
Parts<Collector> search_blocks(int n_threads, const Codes& codes, const Queries& queries,
                               const std::vector<Collector>& empty) {
    const int64_t query_bytes = ceil_div(codes.layout.n_blocks(), 4) * 64;
    std::vector<uint8_t> table(queries.count * query_bytes);
    for (int64_t q = 0; q < queries.count; ++q)
        std::memcpy(table.data() + q * query_bytes, queries.bits + q * queries.bytes, queries.bytes);
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        scan_blocks(codes, table.data(), queries.count, begin, end, best);
    });
}

// Bit planes: a register holds a bit of each of 256 queries for one code, or of 64 queries for each of four codes side
// by side (`Side` is 1 or 4). Two bits x and y of equal weight are kept as x and x ^ y, so that adding two such pairs
// to a third bit costs 8 operations.
struct Pair {
    __m256i x, differ;
};

// sum + (both of a) + (both of b): the new sum, and a pair of twice the weight.
TOPSIGN_AVX2_INLINE Pair add(__m256i& sum, const Pair& a, const Pair& b) {
    const __m256i first = _mm256_xor_si256(sum, a.differ);
    const __m256i either = _mm256_or_si256(_mm256_xor_si256(a.x, sum), a.differ);
    const __m256i carried = _mm256_andnot_si256(b.differ, _mm256_xor_si256(b.x, first));
    sum = _mm256_xor_si256(first, b.differ);
    return {_mm256_xor_si256(first, carried), _mm256_xor_si256(either, carried)};
}

// A table row of one code, or one of each of four whose rows are `stride` apart.
template <int Side, class Row>
TOPSIGN_AVX2_INLINE __m256i load_row(const uint8_t* table, const Row* row, int64_t stride) {
    if constexpr (Side == 1) {
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(table + size_t(*row) * 8));
    } else {
        __m128d half[2];
        for (int h = 0; h < 2; ++h) {
            const auto* low = reinterpret_cast<const double*>(table + size_t(row[2 * h * stride]) * 8);
            const auto* high = reinterpret_cast<const double*>(table + size_t(row[(2 * h + 1) * stride]) * 8);
            half[h] = _mm_loadh_pd(_mm_load_sd(low), high);
        }
        return _mm256_castpd_si256(_mm256_set_m128d(half[1], half[0]));
    }
}

// Adds 4, 8, 16 or 32 rows into the lowest planes; what carries out of them is a pair.
template <int Side, int Rows, class Row>
TOPSIGN_AVX2_INLINE Pair add_rows(const uint8_t* table, const Row* rows, int64_t stride, __m256i* plane) {
    if constexpr (Rows == 4) {
        const __m256i a = load_row<Side>(table, rows, stride), b = load_row<Side>(table, rows + 2, stride);
        return add(plane[0], {a, _mm256_xor_si256(a, load_row<Side>(table, rows + 1, stride))},
                   {b, _mm256_xor_si256(b, load_row<Side>(table, rows + 3, stride))});
    } else {
        constexpr int level = Rows == 8 ? 1 : Rows == 16 ? 2 : 3;
        const Pair a = add_rows<Side, Rows / 2>(table, rows, stride, plane);
        const Pair b = add_rows<Side, Rows / 2>(table, rows + Rows / 2, stride, plane);
        return add(plane[level], a, b);
    }
}

TOPSIGN_AVX2_INLINE void carry_up(__m256i carry, int count, __m256i* plane) {
    for (int p = 0; p < count; ++p) {
        const __m256i next = _mm256_and_si256(plane[p], carry);
        plane[p] = _mm256_xor_si256(plane[p], carry);
        carry = next;
    }
}

constexpr int kPlanes = 26;  // counts up to 2^25

struct alignas(32) Plane {
    uint64_t words[4];
};

// Adds 32 rows to the counts so far. With a `Planes` known beforehand (0: it is not) they stay in registers.
template <int Side, int Planes, class Row>
TOPSIGN_AVX2_INLINE void add_32_rows(const uint8_t* table, const Row* rows, int64_t stride, int n_planes,
                                     __m256i* planes) {
    const int n = Planes > 0 ? Planes : n_planes;
    __m256i plane[Planes > 0 ? Planes : kPlanes];
    for (int p = 0; p < n; ++p) plane[p] = planes[p];
    const Pair sixteens = add_rows<Side, 32>(table, rows, stride, plane);
    const __m256i carry = _mm256_or_si256(_mm256_and_si256(sixteens.differ, plane[4]),
                                          _mm256_andnot_si256(sixteens.differ, sixteens.x));
    plane[4] = _mm256_xor_si256(sixteens.differ, plane[4]);
    carry_up(carry, n - 5, plane + 5);
    for (int p = 0; p < n; ++p) planes[p] = plane[p];
}

// Counts a group of codes together, 32 rows of each in turn: rows ascend, so those of a turn lie near each other, and
// a part of the table that stays in the fastest cache serves all.
constexpr int64_t kGroup = 256;

template <int Side, int Planes, class Row>
TOPSIGN_AVX2 void count_group(const uint8_t* table, const Row* rows, int64_t stride, int64_t n_bits, int64_t n_codes,
                              int n_planes, __m256i* planes) {
    for (int64_t i = 0; i < ceil_div(n_codes, Side) * n_planes; ++i) planes[i] = _mm256_setzero_si256();
    int64_t j = 0;
    for (; j + 32 <= n_bits; j += 32)
        for (int64_t c = 0; c < n_codes; c += Side)
            add_32_rows<Side, Planes>(table, rows + c * stride + j, stride, n_planes, planes + c / Side * n_planes);
    for (int64_t c = 0; c < n_codes; c += Side)
        for (int64_t last = j; last < n_bits; ++last)
            carry_up(load_row<Side>(table, rows + c * stride + last, stride), n_planes, planes + c / Side * n_planes);
}

template <int Side, class Row, class Collector>
TOPSIGN_AVX2 void scan_planes(const Codes& codes, const uint8_t* table, int64_t n_queries, int64_t begin, int64_t end,
                              Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = n_bits + 32;
    int n_planes = 5;
    while (n_bits + 1 >= int64_t(1) << n_planes) ++n_planes;
    n_planes = n_planes <= 8 ? 8 : n_planes <= 10 ? 10 : n_planes;
    std::vector<Row> rows(kGroup * stride);
    std::vector<Plane> memory(kGroup / Side * n_planes);
    auto* const planes = reinterpret_cast<__m256i*>(memory.data());
    const RowReader<Row> reader(codes.path, codes.layout, codes.data, codes.count, (Side == 1 ? kRowShift : 0));
    alignas(32) uint64_t bounds[kPlanes][4] = {}, counts[kPlanes][4], hits[4];
    const auto set_bound = [&](int64_t q) {
        const int64_t bound = std::min<int64_t>(best[q].bound(), n_bits + 1);
        const uint64_t bit = uint64_t(1) << (q & 63);
        for (int p = 0; p < n_planes; ++p)
            for (int w = int(q >> 6); w < 4; w += Side == 1 ? 4 : 1)
                bounds[p][w] = (bounds[p][w] & ~bit) | (bound >> p & 1 ? bit : 0);
    };
    for (int64_t q = 0; q < n_queries; ++q) set_bound(q);
    for (int64_t next = begin; next < end;) {
        int64_t group[kGroup], n_codes = 0;
        for (; next < end && n_codes < kGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, rows.data() + n_codes * stride);
            group[n_codes++] = next;
        }
        if (n_planes == 8)
            count_group<Side, 8>(table, rows.data(), stride, n_bits, n_codes, n_planes, planes);
        else if (n_planes == 10)
            count_group<Side, 10>(table, rows.data(), stride, n_bits, n_codes, n_planes, planes);
        else
            count_group<Side, 0>(table, rows.data(), stride, n_bits, n_codes, n_planes, planes);
        for (int64_t c = 0; c < n_codes; c += Side) {
            const __m256i* plane = planes + c / Side * n_planes;
            __m256i less = _mm256_setzero_si256();
            for (int p = 0; p < n_planes; ++p) {
                const __m256i bound = _mm256_load_si256(reinterpret_cast<const __m256i*>(bounds[p]));
                const __m256i differ = _mm256_xor_si256(plane[p], bound);
                less = _mm256_or_si256(_mm256_and_si256(differ, bound), _mm256_andnot_si256(differ, less));
            }
            if (_mm256_testz_si256(less, less)) continue;
            _mm256_store_si256(reinterpret_cast<__m256i*>(hits), less);
            for (int p = 0; p < n_planes; ++p) _mm256_store_si256(reinterpret_cast<__m256i*>(counts[p]), plane[p]);
            for (int w = 0; w < 4 && c + w % Side < n_codes; ++w)
                for (uint64_t word = hits[w]; word; word &= word - 1) {
                    const int bit = count_trailing_zeros(word);
                    const int64_t q = Side == 1 ? w * 64 + bit : bit;
                    int32_t count = 0;
                    for (int p = 0; p < n_planes; ++p) count |= int32_t(counts[p][w] >> bit & 1) << p;
                    best[q].offer(count, group[c + w % Side]);
                    set_bound(q);
                }
        }
    }
}

template <int Side, class Collector>
Parts<Collector> search_planes(int n_threads, const Codes& codes, const Queries& queries,
                               const std::vector<Collector>& empty) {
    constexpr int kWords = 4 / Side;
    Table table(table_rows(codes.layout) * 8 * kWords);
    for (int64_t first = 0; first < queries.count; first += 64) {
        const Queries some{queries.bits + first * queries.bytes, nullptr, queries.bytes,
                           std::min<int64_t>(64, queries.count - first)};
        for_each_row(codes.layout, some,
                     [&](int64_t row, uint64_t word) { table.words()[row * kWords + first / 64] = word; });
    }
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        if (narrow_rows(codes.layout, (Side == 1 ? kRowShift : 0)))
            scan_planes<Side, uint16_t>(codes, table.bytes(), queries.count, begin, end, best);
        else
            scan_planes<Side, uint32_t>(codes, table.bytes(), queries.count, begin, end, best);
    });
}
#endif

template <class Collector>
Parts<Collector> search_tile(int n_threads, const Codes& codes, const Queries& queries,
                             const std::vector<Collector>& empty) {
    if (codes.layout.signs())
        return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
            scan_signs(codes, queries, begin, end, best);
        });
    const auto search_each = [&](auto row) {
        const std::vector<uint8_t> table = byte_table(codes.layout, queries);
        return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
            scan_each<decltype(row)>(codes, table, queries.count, begin, end, best);
        });
    };
#if TOPSIGN_X86
    if (codes.path == kAvx2) {
        if (codes.layout.fast() && queries.count <= kFew) return search_blocks(n_threads, codes, queries, empty);
        if (queries.count == 1 && narrow_rows(codes.layout, 0)) return search_each(uint16_t());
        return queries.count > 64 ? search_planes<1>(n_threads, codes, queries, empty)
                                  : search_planes<4>(n_threads, codes, queries, empty);
    }
#endif
    return search_each(uint32_t());
}

Queries tile_of(const uint8_t* bits, const uint8_t* masks, int64_t bytes, int64_t first, int64_t count) {
    return {bits + first * bytes, masks ? masks + first * bytes : nullptr, bytes, count};
}

}  // namespace
}  // namespace topsign

using namespace topsign;

int ts_search_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                         int64_t n_pool, int64_t low_bits, const uint8_t* alive, const uint8_t* query_bits,
                         const uint8_t* masks, int64_t n_queries, int64_t k, int64_t* positions, int32_t* mismatches) {
    return guarded([&] {
        const Codes all{path, {n_bits, n_pool, low_bits}, codes, n_codes, alive};
        const int64_t bytes = ceil_div(n_pool, 8);
        for (int64_t first = 0; first < n_queries; first += kTile) {
            const int64_t count = std::min(kTile, n_queries - first);
            const std::vector<Best<int32_t>> empty(count, Best<int32_t>(k));
            const auto parts = search_tile(n_threads, all, tile_of(query_bits, masks, bytes, first, count), empty);
            write_best(parts, first, k, mismatches, positions);
        }
    });
}

int ts_within_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                         int64_t n_pool, int64_t low_bits, const uint8_t* alive, const uint8_t* query_bits,
                         const uint8_t* masks, int64_t n_queries, const int32_t* radii, int64_t capacity,
                         int64_t* positions, int32_t* mismatches, int64_t* counts) {
    return guarded([&] {
        const Codes all{path, {n_bits, n_pool, low_bits}, codes, n_codes, alive};
        const int64_t bytes = ceil_div(n_pool, 8);
        int64_t total = 0;
        for (int64_t first = 0; first < n_queries; first += kTile) {
            const int64_t count = std::min(kTile, n_queries - first);
            std::vector<Within<int32_t>> empty;
            for (int64_t q = first; q < first + count; ++q) empty.emplace_back(radii[q] + 1);
            const auto parts = search_tile(n_threads, all, tile_of(query_bits, masks, bytes, first, count), empty);
            write_within(parts, first, capacity, total, mismatches, positions, counts);
        }
    });
}
