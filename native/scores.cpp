// Searching by score: real-valued queries against the codes.
//
// Scores are exact. To find the few codes worth an exact sum, queries are first rounded to 8 bits: a code's rounded
// sum differs from the true one by at most n_bits times the query's largest rounding error, so a code whose rounded sum
// plus that margin does not reach the bound cannot enter, and every other code is summed exactly. The margin grows as
// n_bits, sums as its root: of long codes too many would pass, so that what was lost is rounded to 8 bits once more.
#include <cmath>
#include <optional>

#include "collect.h"
#include "rows.h"
#include "scan.h"
#include "table.h"

namespace topsign {
namespace {

constexpr int64_t kTile = 64;  // queries that share a table
// Up to so many queries are looked up one by one: where both ways cost the same at 512 of 8192, measured.
constexpr int64_t kFewFast = 6, kFewCompact = 3;
// Codes of so many bits, of which more queries than these pass, are summed a second time before they are exactly.
constexpr int64_t kLongBits = 2048, kManyPass = 2;

struct Codes {
    int path;
    Layout layout;
    const uint8_t* data;
    int64_t count;
    const uint8_t* alive;
    const float* weights;

    float weight(int64_t i) const { return weights ? weights[i] : 1.f; }
    const uint8_t* code(int64_t i) const { return data + i * layout.code_bytes(); }
    void unpack(int64_t i, uint32_t* kept) const {  // room for 32 more is written to
        unpack_kept(path, layout, code(i), (i + 1) * layout.code_bytes() + 64 <= count * layout.code_bytes(), kept);
    }
};

struct Queries {
    const float* values;
    int64_t n_pool;
    int64_t count;
    const float* operator[](int64_t q) const { return values + q * n_pool; }
};

// The exact score of a code that was unpacked, offered as a key of which less is better.
template <class Collector>
void offer(Collector& best, float sum, float weight, bool weighted, int64_t i) {
    const float key = -(weighted ? sum * weight : sum);
    if (key < best.bound()) best.offer(key, i);
}

template <class Collector>
void scan_exactly(const Codes& codes, const Queries& queries, int64_t begin, int64_t end, Collector* best) {
    std::vector<uint32_t> kept(codes.layout.n_bits + 32);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        if (!codes.layout.signs()) codes.unpack(i, kept.data());
        for (int64_t q = 0; q < queries.count; ++q) {
            const float sum = codes.layout.signs()
                                  ? sum_signs(codes.path, codes.code(i), codes.layout.n_pool, queries[q])
                                  : sum_kept(codes.path, kept.data(), codes.layout.n_bits, queries[q]);
            offer(best[q], sum, codes.weight(i), codes.weights != nullptr, i);
        }
    }
}

#if TOPSIGN_X86
// Queries rounded to multiples of a step. No sum of n_bits of their values errs by more than the margin.
struct Rounded {
    std::vector<int8_t> values;  // (n_queries, n_pool)
    std::vector<float> steps, margins, largest;
    std::vector<float> lost;  // (n_queries, n_pool), where it is asked for
};

TOPSIGN_AVX2_INLINE float largest_of(__m256 values) {
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, values);
    return *std::max_element(lanes, lanes + 8);
}

TOPSIGN_AVX2_INLINE __m256 magnitude(__m256 values) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), values); }

TOPSIGN_AVX2 Rounded round_queries(const Queries& queries, int64_t n_bits, bool keep_lost = false) {
    Rounded rounded;
    const int64_t n_pool = queries.n_pool, whole = n_pool / 8 * 8;
    rounded.values.resize(queries.count * n_pool);
    if (keep_lost) rounded.lost.resize(queries.count * n_pool);
    for (int64_t q = 0; q < queries.count; ++q) {
        float rest[8] = {};  // the last values, filled up with zeros
        std::copy(queries[q] + whole, queries[q] + n_pool, rest);
        const auto values = [&](int64_t j) TOPSIGN_AVX2 { return _mm256_loadu_ps(j < whole ? queries[q] + j : rest); };
        __m256 most = _mm256_setzero_ps(), worst = _mm256_setzero_ps();
        for (int64_t j = 0; j < n_pool; j += 8) most = _mm256_max_ps(most, magnitude(values(j)));
        const float largest = largest_of(most), step = largest > 0 ? largest / 127 : 1.f;
        for (int64_t j = 0; j < n_pool; j += 8) {
            const __m256 value = values(j), limit = _mm256_set1_ps(127.f);
            const __m256 near = _mm256_round_ps(_mm256_div_ps(value, _mm256_set1_ps(step)),
                                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            const __m256 kept = _mm256_max_ps(_mm256_min_ps(near, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));
            const __m256 error = _mm256_sub_ps(value, _mm256_mul_ps(kept, _mm256_set1_ps(step)));
            worst = _mm256_max_ps(worst, magnitude(error));
            const __m256i whole_numbers = _mm256_cvtps_epi32(kept);
            const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole_numbers),
                                                  _mm256_extracti128_si256(whole_numbers, 1));
            const __m128i bytes = _mm_packs_epi16(words, words);
            const size_t n = size_t(std::min<int64_t>(8, n_pool - j));
            std::memcpy(&rounded.values[q * n_pool + j], &bytes, n);
            if (keep_lost) std::memcpy(&rounded.lost[q * n_pool + j], &error, n * sizeof(float));
        }
        // The comparisons below are made in float32: allow for their rounding, relative to the largest sum there is.
        const double margin = double(n_bits) * (double(largest_of(worst)) * (1 + 1e-6) + 4e-7 * double(largest));
        rounded.steps.push_back(step);
        rounded.margins.push_back(float(margin));
        rounded.largest.push_back(largest);
    }
    return rounded;
}

// What was lost, rounded in turn; its margins hold for the sum of both.
Rounded round_lost(const Rounded& rounded, const Queries& queries, int64_t n_bits) {
    Rounded finer = round_queries(Queries{rounded.lost.data(), queries.n_pool, queries.count}, n_bits);
    // Losses were taken and both sums are added in float32, relative to the largest sum there is.
    for (int64_t q = 0; q < queries.count; ++q) finer.margins[q] += float(1e-6 * double(n_bits) * rounded.largest[q]);
    return finer;
}

// One or a few queries against the fast layout, two blocks at a time: a location's low four bits fetch a byte from
// each of eight registers of rounded values, its next three choose among the eight, and the code's sign is applied.
// Values stand in the order of the lookups, negated, since a negative sign bit is a positive projection.
constexpr int64_t kValueBytes = 256;  // of two blocks

std::vector<int8_t> block_table(const Layout& layout, const Queries& queries, const Rounded& rounded) {
    const int64_t stride = ceil_div(layout.n_blocks(), 2) * kValueBytes;
    std::vector<int8_t> table(queries.count * stride);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int64_t block = location / kBlockRows, offset = location % kBlockRows;
            table[q * stride + block / 2 * kValueBytes + (offset & 7) * 32 + block % 2 * 16 + (offset >> 3)] =
                int8_t(-rounded.values[q * layout.n_pool + location]);
        }
    return table;
}

alignas(32) const uint8_t kPresent[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                          255, 255, 255, 255, 255};  // the last n of the first 16 are there

// Adds the values at up to sixteen locations of each of two blocks.
template <int N>
TOPSIGN_AVX2_INLINE void add_values(const uint8_t* first, int n_first, const uint8_t* second, int n_second,
                                    const int8_t* const* table, int64_t offset, __m256i* sums) {
    const __m256i ones = _mm256_set1_epi8(1), bytes = load_two(first, second);
    const __m256i present = load_two(kPresent + 16 - n_first, kPresent + 16 - n_second);
    const __m256i lookup = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    const __m256i by_1 = _mm256_slli_epi16(bytes, 3), by_2 = _mm256_slli_epi16(bytes, 2);
    const __m256i by_4 = _mm256_slli_epi16(bytes, 1);
    const __m256i sign = _mm256_and_si256(_mm256_or_si256(bytes, ones), present);
    for (int q = 0; q < N; ++q) {
        const auto* values = reinterpret_cast<const __m256i*>(table[q] + offset);
        __m256i pick[8];
        for (int t = 0; t < 8; ++t) pick[t] = _mm256_shuffle_epi8(_mm256_loadu_si256(values + t), lookup);
        for (int t = 0; t < 8; t += 2) pick[t] = _mm256_blendv_epi8(pick[t], pick[t + 1], by_1);
        for (int t = 0; t < 8; t += 4) pick[t] = _mm256_blendv_epi8(pick[t], pick[t + 2], by_2);
        const __m256i value = _mm256_sign_epi8(_mm256_blendv_epi8(pick[0], pick[4], by_4), sign);
        sums[q] = _mm256_add_epi16(sums[q], _mm256_maddubs_epi16(ones, value));
    }
}

// The same for two blocks of any number of locations; rare, so kept out of the way of the registers.
template <int N>
TOPSIGN_AVX2 __attribute__((noinline)) void add_many_values(const uint8_t* first, int n_first, const uint8_t* second,
                                                            int n_second, const int8_t* const* table, int64_t offset,
                                                            __m256i* sums) {
    while (n_first > 0 || n_second > 0) {
        add_values<N>(first, std::min(16, n_first), second, std::min(16, n_second), table, offset, sums);
        first += n_first > 16 ? 16 : 0;  // a block that is done stays where it is, inside the code
        second += n_second > 16 ? 16 : 0;
        n_first = std::max(0, n_first - 16);
        n_second = std::max(0, n_second - 16);
    }
}

template <int N>
TOPSIGN_AVX2_INLINE void sum_in_blocks(const uint8_t* code, int64_t n_blocks, const int8_t* const* table,
                                       int32_t* sums) {
    const uint8_t* at = code + n_blocks;
    __m256i wide[N], narrow[N];
    for (auto& sum : wide) sum = _mm256_setzero_si256();
    for (int64_t start = 0; start < n_blocks; start += 32) {  // at most 128 steps fit 16 bits, 8 for two full blocks
        for (auto& sum : narrow) sum = _mm256_setzero_si256();
        for (int64_t block = start; block < std::min(n_blocks, start + 32); block += 2) {
            const int n_first = code[block], n_second = block + 1 < n_blocks ? code[block + 1] : 0;
            const int64_t offset = block / 2 * kValueBytes;
            if (std::max(n_first, n_second) <= 16) {
                add_values<N>(at, n_first, at + n_first, n_second, table, offset, narrow);
            } else {
                __m256i many[N];
                for (auto& sum : many) sum = _mm256_setzero_si256();
                add_many_values<N>(at, n_first, at + n_first, n_second, table, offset, many);
                for (int q = 0; q < N; ++q) narrow[q] = _mm256_add_epi16(narrow[q], many[q]);
            }
            at += n_first + n_second;
        }
        for (int q = 0; q < N; ++q)
            wide[q] = _mm256_add_epi32(wide[q], _mm256_madd_epi16(narrow[q], _mm256_set1_epi16(1)));
    }
    for (int q = 0; q < N; ++q) {
        const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(wide[q]), _mm256_extracti128_si256(wide[q], 1));
        const __m128i quarter = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
        sums[q] = _mm_cvtsi128_si32(quarter) + _mm_extract_epi32(quarter, 1);
    }
}

template <class Collector>
TOPSIGN_AVX2 void scan_blocks(const Codes& codes, const Queries& queries, const Rounded& rounded,
                              const std::vector<int8_t>& table, int64_t begin, int64_t end, Collector* best) {
    const int64_t stride = codes.layout.code_bytes(), n_blocks = codes.layout.n_blocks();
    const int64_t table_bytes = ceil_div(n_blocks, 2) * kValueBytes;
    std::vector<uint8_t> last(stride + 64);
    std::vector<uint32_t> kept(codes.layout.n_bits + 32);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        const uint8_t* code = codes.code(i);
        if ((i + 1) * stride + 64 > codes.count * stride) {  // near the end of the codes: read from a copy with room
            std::memcpy(last.data(), code, stride);
            code = last.data();
        }
        bool unpacked = false;
        for (int64_t q = 0; q < queries.count;) {
            const int8_t* tables[2] = {table.data() + q * table_bytes, table.data() + (q + 1) * table_bytes};
            int32_t sums[2];
            const int n = queries.count - q >= 2 ? 2 : 1;
            n == 2 ? sum_in_blocks<2>(code, n_blocks, tables, sums) : sum_in_blocks<1>(code, n_blocks, tables, sums);
            for (int s = 0; s < n; ++s, ++q) {
                const float reach = (float(sums[s]) * rounded.steps[q] + rounded.margins[q]) * codes.weight(i);
                if (reach < -best[q].bound()) continue;
                if (!unpacked) codes.unpack(i, kept.data());
                unpacked = true;
                offer(best[q], sum_kept(codes.path, kept.data(), codes.layout.n_bits, queries[q]), codes.weight(i),
                      codes.weights != nullptr, i);
            }
        }
    }
}

// A few queries: each has a byte for every table row, the location's rounded value with the row's sign.
template <class Row, class Collector>
TOPSIGN_AVX2 void scan_few(const Codes& codes, const Queries& queries, const Rounded& rounded,
                           const std::vector<int8_t>& table, int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = table_rows(codes.layout);
    std::vector<Row> rows(n_bits + 32);
    std::vector<uint32_t> kept(n_bits + 32);
    const RowReader<Row> reader(codes.path, codes.layout, codes.data, codes.count);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        reader.read(i, rows.data());
        bool unpacked = false;
        for (int64_t q = 0; q < queries.count; ++q) {
            const int8_t* values = table.data() + q * stride;
            int32_t sums[4] = {0, 0, 0, 0};
            const Row* row = rows.data();
            int64_t j = 0;
            for (; j + 8 <= n_bits; j += 8)
                for (int s = 0; s < 8; ++s) sums[s & 3] += values[row[j + s]];
            for (; j < n_bits; ++j) sums[0] += values[row[j]];
            const float sum = float(sums[0] + sums[1] + sums[2] + sums[3]);
            const float reach = (sum * rounded.steps[q] + rounded.margins[q]) * codes.weight(i);
            if (reach < -best[q].bound()) continue;
            if (!unpacked) codes.unpack(i, kept.data());
            unpacked = true;
            offer(best[q], sum_kept(codes.path, kept.data(), n_bits, queries[q]), codes.weight(i),
                  codes.weights != nullptr, i);
        }
    }
}

std::vector<int8_t> signed_table(const Layout& layout, const Queries& queries, const Rounded& rounded) {
    const int64_t stride = table_rows(layout);
    std::vector<int8_t> table(queries.count * stride);
    for (int64_t q = 0; q < queries.count; ++q)
        for (int64_t location = 0; location < layout.n_pool; ++location) {
            const int8_t value = rounded.values[q * layout.n_pool + location];
            table[q * stride + table_row(layout, location, true)] = value;
            table[q * stride + table_row(layout, location, false)] = int8_t(-value);
        }
    return table;
}

// Splits table rows into places of a table with one row per location, and signs.
template <class Row>
TOPSIGN_AVX2 void split_signs(const Layout& layout, const Row* rows, int64_t n, uint32_t* places, int8_t* signs) {
    if (layout.fast()) {
        for (int64_t j = 0; j < n; ++j) places[j] = ((rows[j] >> 8) << 7 | (rows[j] & 127)) * kTile;
        for (int64_t j = 0; j < n; ++j) signs[j] = rows[j] & 128 ? 1 : -1;
    } else {
        for (int64_t j = 0; j < n; ++j) places[j] = (rows[j] >> 1) * kTile;
        for (int64_t j = 0; j < n; ++j) signs[j] = rows[j] & 1 ? 1 : -1;
    }
}

int64_t table_place(const Layout& layout, int64_t location) {
    const int64_t row = table_row(layout, location, false);
    return layout.fast() ? row / 256 * 128 + row % 128 : location;
}

// Rounded sums of 64 queries: a row holds their values plus 128 as unsigned bytes. Two rows are interleaved, and
// one instruction multiplies by their signs and adds them in 16 bits; up to 64 such pairs fit before they go to 32.
TOPSIGN_AVX2_INLINE void add_pairs(const uint8_t* table, const uint32_t* places, const int8_t* signs, int64_t n_pairs,
                                   __m256i* sums) {
    __m256i low[2] = {}, high[2] = {};
    for (int64_t p = 0; p < n_pairs; ++p) {
        int16_t pattern;
        std::memcpy(&pattern, signs + 2 * p, 2);
        const __m256i sign = _mm256_set1_epi16(pattern);
        const uint8_t *first = table + places[2 * p], *second = table + places[2 * p + 1];
        for (int h = 0; h < 2; ++h) {
            const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(first + 32 * h));
            const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(second + 32 * h));
            low[h] = _mm256_add_epi16(low[h], _mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), sign));
            high[h] = _mm256_add_epi16(high[h], _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), sign));
        }
    }
    for (int h = 0; h < 2; ++h) {  // unpacking works in halves: queries 0-7 and 16-23 are low, the others high
        sums[4 * h] = _mm256_add_epi32(sums[4 * h], _mm256_cvtepi16_epi32(_mm256_castsi256_si128(low[h])));
        sums[4 * h + 1] = _mm256_add_epi32(sums[4 * h + 1], _mm256_cvtepi16_epi32(_mm256_castsi256_si128(high[h])));
        sums[4 * h + 2] = _mm256_add_epi32(sums[4 * h + 2], _mm256_cvtepi16_epi32(_mm256_extracti128_si256(low[h], 1)));
        sums[4 * h + 3] = _mm256_add_epi32(sums[4 * h + 3], _mm256_cvtepi16_epi32(_mm256_extracti128_si256(high[h], 1)));
    }
}

// A group of codes is summed together, some rows of each in turn: rows ascend, so those of a turn lie near each other,
// and a part of the table that stays in the fastest caches serves all.
constexpr int64_t kGroup = 256, kPairs = 64;

struct alignas(32) TileSums {
    int32_t sum[kTile];
};

// Rounded values of up to 64 queries, with their steps and margins; the queries that are missing have none.
struct Tile {
    Table table;
    alignas(32) float steps[kTile] = {}, margins[kTile] = {};

    Tile(const Layout& layout, const Rounded& rounded, int64_t n_queries)
        : table(ceil_div(layout.n_pool, kBlockRows) * kBlockRows * kTile) {
        for (int64_t begin = 0; begin < layout.n_pool; begin += kTile) {  // turned over in squares
            const int64_t end = std::min(begin + kTile, layout.n_pool);
            for (int64_t q = 0; q < n_queries; ++q)
                for (int64_t location = begin; location < end; ++location)
                    table.bytes()[table_place(layout, location) * kTile + q] =
                        uint8_t(rounded.values[q * layout.n_pool + location] + 128);
        }
        std::copy(rounded.steps.begin(), rounded.steps.end(), steps);
        std::copy(rounded.margins.begin(), rounded.margins.end(), margins);
    }
};

// Queries, a bit each, whose rounded sums reach their bounds; `coarse`, where it is given, is added.
TOPSIGN_AVX2_INLINE uint64_t reaching(const Tile& tile, const TileSums& sums, float weight, const float* bounds,
                                      const Tile* coarse = nullptr, const TileSums* coarse_sums = nullptr) {
    uint64_t found = 0;
    for (int g = 0; g < kTile; g += 8) {
        const auto scaled = [g](const Tile& by, const TileSums& of) TOPSIGN_AVX2 {
            const __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i*>(of.sum + g));
            return _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_load_ps(by.steps + g));
        };
        __m256 sum = scaled(tile, sums);
        if (coarse) sum = _mm256_add_ps(scaled(*coarse, *coarse_sums), sum);
        const __m256 reach = _mm256_mul_ps(_mm256_add_ps(sum, _mm256_load_ps(tile.margins + g)), _mm256_set1_ps(weight));
        const __m256 enough = _mm256_cmp_ps(reach, _mm256_load_ps(bounds + g), _CMP_GE_OQ);
        found |= uint64_t(uint32_t(_mm256_movemask_ps(enough))) << g;
    }
    return found;
}

// `finer`, where it is given, holds what the tile's rounding lost.
template <class Row, class Collector>
TOPSIGN_AVX2 void scan_tile(const Codes& codes, const Queries& queries, const Tile& tile, const Tile* finer,
                            int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, n_pairs = ceil_div(n_bits, 2), stride = 2 * n_pairs;
    std::vector<Row> rows(n_bits + 32);
    std::vector<uint32_t> places(kGroup * stride), kept(n_bits + 32);
    std::vector<int8_t> signs(kGroup * stride);  // an odd count is filled up with a row that counts nothing
    std::vector<TileSums> sums(kGroup);
    std::vector<int32_t> balances(kGroup);
    const RowReader<Row> reader(codes.path, codes.layout, codes.data, codes.count);
    alignas(32) float bounds[kTile];
    for (int64_t q = 0; q < kTile; ++q)
        bounds[q] = q < queries.count ? -best[q].bound() : std::numeric_limits<float>::infinity();
    const auto add = [&](const Tile& from, int64_t c, int64_t start, TileSums& to) TOPSIGN_AVX2 {
        add_pairs(from.table.bytes(), &places[c * stride + 2 * start], &signs[c * stride + 2 * start],
                  std::min(kPairs, n_pairs - start), reinterpret_cast<__m256i*>(to.sum));
    };
    for (int64_t next = begin; next < end;) {
        int64_t group[kGroup], n_codes = 0;
        for (; next < end && n_codes < kGroup; ++next) {
            if (!is_alive(codes.alive, next)) continue;
            reader.read(next, rows.data());
            split_signs(codes.layout, rows.data(), n_bits, &places[n_codes * stride], &signs[n_codes * stride]);
            balances[n_codes] = 0;
            for (int64_t j = 0; j < n_bits; ++j) balances[n_codes] += signs[n_codes * stride + j];
            std::fill(sums[n_codes].sum, sums[n_codes].sum + kTile, -128 * balances[n_codes]);
            group[n_codes++] = next;
        }
        for (int64_t start = 0; start < n_pairs; start += kPairs)
            for (int64_t c = 0; c < n_codes; ++c) add(tile, c, start, sums[c]);
        for (int64_t c = 0; c < n_codes; ++c) {
            const int64_t i = group[c];
            uint64_t hits = reaching(tile, sums[c], codes.weight(i), bounds);
            if (finer && count_ones(hits) > kManyPass) {
                TileSums lost;
                std::fill(lost.sum, lost.sum + kTile, -128 * balances[c]);
                for (int64_t start = 0; start < n_pairs; start += kPairs) add(*finer, c, start, lost);
                hits = reaching(*finer, lost, codes.weight(i), bounds, &tile, &sums[c]);
            }
            if (hits == 0) continue;
            codes.unpack(i, kept.data());
            for (; hits; hits &= hits - 1) {
                const int q = count_trailing_zeros(hits);
                offer(best[q], sum_kept(codes.path, kept.data(), n_bits, queries[q]), codes.weight(i),
                      codes.weights != nullptr, i);
                bounds[q] = -best[q].bound();
            }
        }
    }
}

template <class Collector>
Parts<Collector> search_rounded(int n_threads, const Codes& codes, const Queries& queries,
                                const std::vector<Collector>& empty) {
    const bool few = queries.count <= (codes.layout.fast() ? kFewFast : kFewCompact);
    const bool twice = !few && codes.layout.n_bits >= kLongBits;
    const Rounded rounded = round_queries(queries, codes.layout.n_bits, twice);
    if (few && codes.layout.fast()) {
        const std::vector<int8_t> table = block_table(codes.layout, queries, rounded);
        return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
            scan_blocks(codes, queries, rounded, table, begin, end, best);
        });
    }
    if (few) {
        const std::vector<int8_t> table = signed_table(codes.layout, queries, rounded);
        return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
            if (narrow_rows(codes.layout, 0))
                scan_few<uint16_t>(codes, queries, rounded, table, begin, end, best);
            else
                scan_few<uint32_t>(codes, queries, rounded, table, begin, end, best);
        });
    }
    const Tile tile(codes.layout, rounded, queries.count);
    std::optional<Tile> finer;
    if (twice) finer.emplace(codes.layout, round_lost(rounded, queries, codes.layout.n_bits), queries.count);
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        if (narrow_rows(codes.layout, 0))
            scan_tile<uint16_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
        else
            scan_tile<uint32_t>(codes, queries, tile, finer ? &*finer : nullptr, begin, end, best);
    });
}
#endif

template <class Collector>
Parts<Collector> search_tile(int n_threads, const Codes& codes, const Queries& queries,
                             const std::vector<Collector>& empty) {
#if TOPSIGN_X86
    if (codes.path == kAvx2 && !codes.layout.signs()) return search_rounded(n_threads, codes, queries, empty);
#endif
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        scan_exactly(codes, queries, begin, end, best);
    });
}

}  // namespace
}  // namespace topsign

using namespace topsign;

int ts_search_scores(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits, int64_t n_pool,
                     int64_t low_bits, const uint8_t* alive, const float* weights, const float* queries,
                     int64_t n_queries, int64_t k, int64_t* positions, float* scores) {
    return guarded([&] {
        const Codes all{path, {n_bits, n_pool, low_bits}, codes, n_codes, alive, weights};
        for (int64_t first = 0; first < n_queries; first += kTile) {
            const int64_t count = std::min(kTile, n_queries - first);
            const std::vector<Best<float>> empty(count, Best<float>(k));
            const auto parts = search_tile(n_threads, all, Queries{queries + first * n_pool, n_pool, count}, empty);
            write_best(parts, first, k, scores, positions);
        }
        for (int64_t i = 0; i < n_queries * k; ++i) scores[i] = -scores[i];
    });
}

int ts_within_scores(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits, int64_t n_pool,
                     int64_t low_bits, const uint8_t* alive, const float* weights, const float* queries,
                     int64_t n_queries, const float* thresholds, int64_t capacity, int64_t* positions, float* scores,
                     int64_t* counts) {
    return guarded([&] {
        const Codes all{path, {n_bits, n_pool, low_bits}, codes, n_codes, alive, weights};
        int64_t total = 0;
        for (int64_t first = 0; first < n_queries; first += kTile) {
            const int64_t count = std::min(kTile, n_queries - first);
            std::vector<Within<float>> empty;  // a score of exactly the threshold is within: the next key above it is not
            for (int64_t q = first; q < first + count; ++q)
                empty.emplace_back(std::nextafter(-thresholds[q], std::numeric_limits<float>::infinity()));
            const auto parts = search_tile(n_threads, all, Queries{queries + first * n_pool, n_pool, count}, empty);
            write_within(parts, first, capacity, total, scores, positions, counts);
        }
        for (int64_t i = 0; i < std::min(total, capacity); ++i) scores[i] = -scores[i];
    });
}
