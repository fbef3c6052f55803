// Searching by mismatches: the scan that fits the batch, with the best codes kept as it goes.
//
// Few queries: each code's locations are looked up in each query's bits. More: a table row holds a bit of each of 64
// or 256 queries, and the rows of a code are added into bit planes by carry-save adders; planes are then compared
// with every query's bound at once.
#include "collect.h"
#include "rows.h"
#include "scan.h"
#include "table.h"

namespace topsign {
namespace {

constexpr int64_t kTile = 256;  // queries that share a table
constexpr int64_t kFew = 6;     // up to so many are looked up one by one: measured, benchmarks/search.py

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
template <class Collector>
void scan_each(const Codes& codes, const std::vector<uint8_t>& table, int64_t n_queries, int64_t begin, int64_t end,
               Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = table_rows(codes.layout);
    std::vector<uint32_t> rows(n_bits + 32);
    const RowReader<uint32_t> reader(codes.path, codes.layout, codes.data, codes.count);
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
TOPSIGN_AVX2_INLINE __m256i load_two(const uint8_t* low, const uint8_t* high) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

template <int N>
TOPSIGN_AVX2_INLINE void count_in_blocks(const uint8_t* code, int64_t n_blocks, const uint8_t* const* query,
                                         int32_t* counts) {
    const __m256i location = _mm256_set1_epi8(0x7f), bit_number = _mm256_set1_epi8(7);
    const __m256i bit_masks = _mm256_set1_epi64x(int64_t(0x8040201008040201u));
    const uint8_t* bytes = code + n_blocks;
    int64_t totals[N] = {};
    for (int64_t block = 0; block < n_blocks; block += 4) {
        uint32_t packed;
        std::memcpy(&packed, code + block, 4);
        if (block + 4 > n_blocks) packed &= (uint32_t(1) << 8 * (n_blocks - block)) - 1;  // the rest is no count
        int left[4] = {int(packed & 255), int(packed >> 8 & 255), int(packed >> 16 & 255), int(packed >> 24)};
        const uint8_t* at[4];
        for (int b = 0; b < 4; ++b) {
            at[b] = bytes;
            bytes += left[b];
        }
        const bool many = (((packed & 0x7f7f7f7fu) + 0x6f6f6f6fu) | packed) & 0x80808080u;  // a count above 16
        for (bool more = true; more;) {
            const __m256i first = load_two(at[0], at[1]), second = load_two(at[2], at[3]);
            const __m256i first_mask =
                _mm256_shuffle_epi8(bit_masks, _mm256_and_si256(_mm256_srli_epi16(first, 4), bit_number));
            const __m256i second_mask =
                _mm256_shuffle_epi8(bit_masks, _mm256_and_si256(_mm256_srli_epi16(second, 4), bit_number));
            uint64_t present = 0;
            for (int b = 0; b < 4; ++b) present |= uint64_t(_bzhi_u32(0xffff, unsigned(left[b]))) << 16 * b;
            for (int q = 0; q < N; ++q) {
                const auto* bits = reinterpret_cast<const __m256i*>(query[q] + block * 16);
                const __m256i a = _mm256_shuffle_epi8(_mm256_loadu_si256(bits), _mm256_and_si256(first, location));
                const __m256i b = _mm256_shuffle_epi8(_mm256_loadu_si256(bits + 1), _mm256_and_si256(second, location));
                const __m256i a_set = _mm256_cmpeq_epi8(_mm256_and_si256(a, first_mask), first_mask);
                const __m256i b_set = _mm256_cmpeq_epi8(_mm256_and_si256(b, second_mask), second_mask);
                const uint32_t low = uint32_t(_mm256_movemask_epi8(_mm256_xor_si256(a_set, first)));
                const uint32_t high = uint32_t(_mm256_movemask_epi8(_mm256_xor_si256(b_set, second)));
                totals[q] += int64_t(_mm_popcnt_u64((uint64_t(high) << 32 | low) & present));
            }
            more = false;
            if (many)
                for (int b = 0; b < 4; ++b) {  // a block that is done stays where it is, inside the code
                    at[b] += left[b] > 16 ? 16 : 0;
                    left[b] = std::max(0, left[b] - 16);
                    more |= left[b] > 0;
                }
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

// Words that hold a bit of each query: 64 queries in a general register, or 256 in a vector. Small tables and four
// general operations a cycle make the first the better one for up to 64.
struct Word64 {
    using Type = uint64_t;
    static constexpr int kWords = 1, kShift = 0;
    static Type zero() { return 0; }
    static Type load(const void* p) { return *static_cast<const uint64_t*>(p); }
    static Type xor_(Type a, Type b) { return a ^ b; }
    static Type or_(Type a, Type b) { return a | b; }
    static Type and_(Type a, Type b) { return a & b; }
    static Type and_not(Type a, Type b) { return ~a & b; }
    static void store(uint64_t* to, Type a) { *to = a; }
};

struct Word256 {
    using Type = __m256i;
    static constexpr int kWords = 4, kShift = kRowShift;
    TOPSIGN_AVX2_INLINE static Type zero() { return _mm256_setzero_si256(); }
    TOPSIGN_AVX2_INLINE static Type load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
    TOPSIGN_AVX2_INLINE static Type xor_(Type a, Type b) { return _mm256_xor_si256(a, b); }
    TOPSIGN_AVX2_INLINE static Type or_(Type a, Type b) { return _mm256_or_si256(a, b); }
    TOPSIGN_AVX2_INLINE static Type and_(Type a, Type b) { return _mm256_and_si256(a, b); }
    TOPSIGN_AVX2_INLINE static Type and_not(Type a, Type b) { return _mm256_andnot_si256(a, b); }
    TOPSIGN_AVX2_INLINE static void store(uint64_t* to, Type a) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to), a);
    }
};

// Two bits x and y of equal weight, kept as x and x ^ y, so that adding two of them to a third costs 8 operations.
template <class W>
struct Pair {
    typename W::Type x, differ;
};

// sum + (both of a) + (both of b): the new sum, and a pair of twice the weight.
template <class W>
TOPSIGN_AVX2_INLINE Pair<W> add(typename W::Type& sum, const Pair<W>& a, const Pair<W>& b) {
    const auto first = W::xor_(sum, a.differ);
    const auto either = W::or_(W::xor_(a.x, sum), a.differ);
    const auto carried = W::and_not(b.differ, W::xor_(b.x, first));
    sum = W::xor_(first, b.differ);
    return {W::xor_(first, carried), W::xor_(either, carried)};
}

constexpr int kPlanes = 26;  // counts up to 2^25

template <class W>
TOPSIGN_AVX2_INLINE typename W::Type load_row(const uint8_t* table, uint32_t row) {
    return W::load(table + size_t(row) * 8);
}

// Adds 4, 8, 16 or 32 rows into the lowest planes; what carries out of them is a pair.
template <class W, int Rows, class Row>
TOPSIGN_AVX2_INLINE Pair<W> add_rows(const uint8_t* table, const Row* rows, typename W::Type* plane) {
    if constexpr (Rows == 4) {
        const auto a = load_row<W>(table, rows[0]), b = load_row<W>(table, rows[2]);
        return add<W>(plane[0], {a, W::xor_(a, load_row<W>(table, rows[1]))},
                      {b, W::xor_(b, load_row<W>(table, rows[3]))});
    } else {
        constexpr int level = Rows == 8 ? 1 : Rows == 16 ? 2 : 3;
        const Pair<W> a = add_rows<W, Rows / 2>(table, rows, plane);
        const Pair<W> b = add_rows<W, Rows / 2>(table, rows + Rows / 2, plane);
        return add<W>(plane[level], a, b);
    }
}

// Adds a carry into planes of rising weight; with a fixed count they stay in registers.
template <class W, int Count>
TOPSIGN_AVX2_INLINE void carry_up(typename W::Type carry, int count, typename W::Type* plane) {
    for (int p = 0; p < (Count > 0 ? Count : count); ++p) {
        const auto next = W::and_(plane[p], carry);
        plane[p] = W::xor_(plane[p], carry);
        carry = next;
    }
}

// Counts the rows of a code into bit planes, `High` (or, for 0, any number) of them above the lowest five.
template <class W, int High, class Row>
TOPSIGN_AVX2_INLINE void add_all_rows(const uint8_t* table, const Row* rows, int64_t n_bits, int n_planes,
                                      typename W::Type* plane) {
    typename W::Type low[5], high[High > 0 ? High : kPlanes];
    for (auto& p : low) p = W::zero();
    for (auto& p : high) p = W::zero();
    int64_t j = 0;
    for (; j + 32 <= n_bits; j += 32) {
        const Pair<W> sixteens = add_rows<W, 32>(table, rows + j, low);
        const auto carry = W::or_(W::and_(sixteens.differ, low[4]), W::and_not(sixteens.differ, sixteens.x));
        low[4] = W::xor_(sixteens.differ, low[4]);
        carry_up<W, High>(carry, n_planes - 5, high);
    }
    for (int p = 0; p < n_planes; ++p) plane[p] = p < 5 ? low[p] : high[p - 5];
    for (; j < n_bits; ++j) carry_up<W, 0>(load_row<W>(table, rows[j]), n_planes, plane);
}

template <class W, class Row, class Collector>
TOPSIGN_AVX2 void scan_planes(const Codes& codes, const uint8_t* table, int64_t n_queries, int64_t begin, int64_t end,
                              Collector* best) {
    const int64_t n_bits = codes.layout.n_bits;
    int n_planes = 5;
    while (n_bits + 1 >= int64_t(1) << n_planes) ++n_planes;
    std::vector<Row> buffer(2 * (n_bits + 32));
    Row* rows[2] = {buffer.data(), buffer.data() + n_bits + 32};
    const RowReader<Row> reader(codes.path, codes.layout, codes.data, codes.count, W::kShift);
    alignas(32) uint64_t bounds[kPlanes][W::kWords] = {}, counts[kPlanes][W::kWords], hits[W::kWords];
    const auto set_bound = [&](int64_t q) {
        const int64_t bound = std::min<int64_t>(best[q].bound(), n_bits + 1);
        const uint64_t bit = uint64_t(1) << (q & 63);
        for (int p = 0; p < n_planes; ++p)
            bounds[p][q >> 6] = (bounds[p][q >> 6] & ~bit) | (bound >> p & 1 ? bit : 0);
    };
    for (int64_t q = 0; q < n_queries; ++q) set_bound(q);
    if (begin < end) reader.read(begin, rows[begin & 1]);
    for (int64_t i = begin; i < end; ++i) {
        if (i + 1 < end) reader.read(i + 1, rows[(i + 1) & 1]);  // ahead, while the adders of this one are busy
        if (!is_alive(codes.alive, i)) continue;
        typename W::Type plane[kPlanes];
        if (n_planes <= 8)
            add_all_rows<W, 3>(table, rows[i & 1], n_bits, n_planes, plane);
        else if (n_planes <= 10)
            add_all_rows<W, 5>(table, rows[i & 1], n_bits, n_planes, plane);
        else
            add_all_rows<W, 0>(table, rows[i & 1], n_bits, n_planes, plane);
        auto less = W::zero();
        for (int p = 0; p < n_planes; ++p) {
            const auto bound = W::load(bounds[p]), differ = W::xor_(plane[p], bound);
            less = W::or_(W::and_(differ, bound), W::and_not(differ, less));
        }
        W::store(hits, less);
        uint64_t any = 0;
        for (uint64_t word : hits) any |= word;
        if (any == 0) continue;
        for (int p = 0; p < n_planes; ++p) W::store(counts[p], plane[p]);
        for (int w = 0; w < W::kWords; ++w)
            for (uint64_t word = hits[w]; word; word &= word - 1) {
                const int bit = count_trailing_zeros(word);
                int32_t count = 0;
                for (int p = 0; p < n_planes; ++p) count |= int32_t(counts[p][w] >> bit & 1) << p;
                best[w * 64 + bit].offer(count, i);
                set_bound(w * 64 + bit);
            }
    }
}

template <class W, class Collector>
Parts<Collector> search_planes(int n_threads, const Codes& codes, const Queries& queries,
                               const std::vector<Collector>& empty) {
    Table table(table_rows(codes.layout) * 8 * W::kWords);
    for (int64_t first = 0; first < queries.count; first += 64) {
        const Queries some{queries.bits + first * queries.bytes, nullptr, queries.bytes,
                           std::min<int64_t>(64, queries.count - first)};
        for_each_row(codes.layout, some,
                     [&](int64_t row, uint64_t word) { table.words()[row * W::kWords + first / 64] = word; });
    }
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        if (narrow_rows(codes.layout))
            scan_planes<W, uint16_t>(codes, table.bytes(), queries.count, begin, end, best);
        else
            scan_planes<W, uint32_t>(codes, table.bytes(), queries.count, begin, end, best);
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
#if TOPSIGN_X86
    if (codes.path == kAvx2) {
        if (codes.layout.fast() && queries.count <= kFew) return search_blocks(n_threads, codes, queries, empty);
        if (queries.count > 64) return search_planes<Word256>(n_threads, codes, queries, empty);
        if (queries.count > kFew / 2) return search_planes<Word64>(n_threads, codes, queries, empty);
    }
#endif
    const std::vector<uint8_t> table = byte_table(codes.layout, queries);
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        scan_each(codes, table, queries.count, begin, end, best);
    });
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
