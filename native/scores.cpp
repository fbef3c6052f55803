// Searching by score: real-valued queries against the codes.
//
// Scores are exact. To find the few codes worth an exact sum, queries are first rounded to 8 bits: a code's rounded
// sum differs from the true one by at most the query's n_bits largest rounding errors, so a code whose rounded sum
// plus that margin does not reach the bound cannot enter, and every other code is summed exactly.
#include <cmath>

#include "collect.h"
#include "rows.h"
#include "scan.h"
#include "table.h"

namespace topsign {
namespace {

constexpr int64_t kTile = 64;  // queries that share a table
constexpr int64_t kFew = 6;    // up to so many are looked up one by one

struct Codes {
    int path;
    Layout layout;
    const uint8_t* data;
    int64_t count;
    const uint8_t* alive;
    const float* weights;

    float weight(int64_t i) const { return weights ? weights[i] : 1.f; }
    const uint8_t* code(int64_t i) const { return data + i * layout.code_bytes(); }
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
    std::vector<uint32_t> kept(codes.layout.n_bits);
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        if (!codes.layout.signs()) unpack_code(codes.layout, codes.code(i), kept.data());
        for (int64_t q = 0; q < queries.count; ++q) {
            const float sum = codes.layout.signs()
                                  ? sum_signs(codes.path, codes.code(i), codes.layout.n_pool, queries[q])
                                  : sum_kept(codes.path, kept.data(), codes.layout.n_bits, queries[q]);
            offer(best[q], sum, codes.weight(i), codes.weights != nullptr, i);
        }
    }
}

#if TOPSIGN_X86
// Queries rounded to multiples of a step.
struct Rounded {
    std::vector<int8_t> values;  // (n_queries, n_pool)
    std::vector<float> steps, margins;
};

Rounded round_queries(const Queries& queries, int64_t n_bits) {
    Rounded rounded;
    rounded.values.resize(queries.count * queries.n_pool);
    std::vector<float> errors(queries.n_pool);
    for (int64_t q = 0; q < queries.count; ++q) {
        float largest = 0;
        for (int64_t j = 0; j < queries.n_pool; ++j) largest = std::max(largest, std::fabs(queries[q][j]));
        const float step = largest > 0 ? largest / 127 : 1.f;
        for (int64_t j = 0; j < queries.n_pool; ++j) {
            const float value = std::min(127.f, std::max(-127.f, std::nearbyint(queries[q][j] / step)));
            rounded.values[q * queries.n_pool + j] = int8_t(value);
            errors[j] = std::fabs(queries[q][j] - value * step);
        }
        std::nth_element(errors.begin(), errors.begin() + (n_bits - 1), errors.end(), std::greater<float>());
        double margin = 0;
        for (int64_t j = 0; j < n_bits; ++j) margin += errors[j];
        // The comparisons below are made in float32: allow for their rounding, relative to the largest sum there is.
        margin = margin * (1 + 1e-6) + 4e-7 * double(n_bits) * double(largest);
        rounded.steps.push_back(step);
        rounded.margins.push_back(float(margin));
    }
    return rounded;
}

// A few queries: each has a byte for every table row, the location's rounded value with the row's sign.
template <class Row, class Collector>
TOPSIGN_AVX2 void scan_few(const Codes& codes, const Queries& queries, const Rounded& rounded,
                           const std::vector<int8_t>& table, int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, stride = table_rows(codes.layout);
    std::vector<Row> rows(n_bits + 32);
    std::vector<uint32_t> kept(n_bits);
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
            if (!unpacked) unpack_code(codes.layout, codes.code(i), kept.data());
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
TOPSIGN_AVX2 void split_signs(const Layout& layout, const uint32_t* rows, int64_t n, uint32_t* places, int8_t* signs) {
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
// one instruction multiplies by their signs and adds them in 16 bits; 64 such pairs fit before they go to 32.
TOPSIGN_AVX2_INLINE void sum_rows(const uint8_t* table, const uint32_t* places, const int8_t* signs, int64_t n_pairs,
                                  __m256i (&sums)[8]) {
    for (auto& sum : sums) sum = _mm256_setzero_si256();
    for (int64_t start = 0; start < n_pairs; start += 64) {
        __m256i low[2] = {}, high[2] = {};
        for (int64_t p = start; p < std::min(n_pairs, start + 64); ++p) {
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
}

template <class Collector>
TOPSIGN_AVX2 void scan_tile(const Codes& codes, const Queries& queries, const Rounded& rounded, const uint8_t* table,
                            int64_t begin, int64_t end, Collector* best) {
    const int64_t n_bits = codes.layout.n_bits, n_pairs = ceil_div(n_bits, 2);
    std::vector<uint32_t> rows(n_bits + 32), places(n_bits + 2), kept(n_bits);
    std::vector<int8_t> signs(n_bits + 2);
    const RowReader<uint32_t> reader(codes.path, codes.layout, codes.data, codes.count);
    alignas(32) float steps[kTile] = {}, margins[kTile] = {}, bounds[kTile];
    for (int64_t q = 0; q < kTile; ++q) bounds[q] = std::numeric_limits<float>::infinity();
    for (int64_t q = 0; q < queries.count; ++q) {
        steps[q] = rounded.steps[q];
        margins[q] = rounded.margins[q];
        bounds[q] = -best[q].bound();
    }
    for (int64_t i = begin; i < end; ++i) {
        if (!is_alive(codes.alive, i)) continue;
        reader.read(i, rows.data());
        split_signs(codes.layout, rows.data(), n_bits, places.data(), signs.data());
        int32_t balance = 0;
        for (int64_t j = 0; j < n_bits; ++j) balance += signs[j];
        places[n_bits] = 0;
        signs[n_bits] = 0;  // an odd count is filled up with a row that counts nothing
        __m256i sums[8];
        sum_rows(table, places.data(), signs.data(), n_pairs, sums);
        const __m256i bias = _mm256_set1_epi32(128 * balance);
        const __m256 weight = _mm256_set1_ps(codes.weight(i));
        uint64_t hits = 0;
        for (int g = 0; g < 8; ++g) {
            const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[g], bias));
            const __m256 scaled = _mm256_mul_ps(sum, _mm256_load_ps(steps + 8 * g));
            const __m256 reach = _mm256_mul_ps(_mm256_add_ps(scaled, _mm256_load_ps(margins + 8 * g)), weight);
            const __m256 enough = _mm256_cmp_ps(reach, _mm256_load_ps(bounds + 8 * g), _CMP_GE_OQ);
            hits |= uint64_t(uint32_t(_mm256_movemask_ps(enough))) << 8 * g;
        }
        if (hits == 0) continue;
        unpack_code(codes.layout, codes.code(i), kept.data());
        for (; hits; hits &= hits - 1) {
            const int q = count_trailing_zeros(hits);
            offer(best[q], sum_kept(codes.path, kept.data(), n_bits, queries[q]), codes.weight(i),
                  codes.weights != nullptr, i);
            bounds[q] = -best[q].bound();
        }
    }
}

template <class Collector>
Parts<Collector> search_rounded(int n_threads, const Codes& codes, const Queries& queries,
                                const std::vector<Collector>& empty) {
    const Rounded rounded = round_queries(queries, codes.layout.n_bits);
    if (queries.count <= kFew) {
        const std::vector<int8_t> table = signed_table(codes.layout, queries, rounded);
        return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
            if (narrow_rows(codes.layout))
                scan_few<uint16_t>(codes, queries, rounded, table, begin, end, best);
            else
                scan_few<uint32_t>(codes, queries, rounded, table, begin, end, best);
        });
    }
    Table table(ceil_div(codes.layout.n_pool, kBlockRows) * kBlockRows * kTile);
    for (int64_t location = 0; location < codes.layout.n_pool; ++location)
        for (int64_t q = 0; q < queries.count; ++q)
            table.bytes()[table_place(codes.layout, location) * kTile + q] =
                uint8_t(rounded.values[q * queries.n_pool + location] + 128);
    return scan_parts(n_threads, codes.count, empty, [&](int64_t begin, int64_t end, Collector* best) {
        scan_tile(codes, queries, rounded, table.bytes(), begin, end, best);
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
