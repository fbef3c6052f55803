/* The C interface of the core: raw arrays in, raw arrays out. Only the bytes of codes are not trusted.

   Arrays are C-ordered and dense. Bits are packed little-endian, bit 1 meaning "projected >= 0" (or a sign of +1).
   A kernel takes the path and thread count of the run, and a struct with its operands. It returns 0, or 1 if memory is
   exhausted. Results are the same bits on every path and thread count; arbitrary bytes in place of codes give some
   result, and no access leaves an array. */
#pragma once

#include <stdint.h>

#if defined(__cplusplus)
#define TOPSIGN_C extern "C"
#else
#define TOPSIGN_C
#endif
#if defined(_WIN32)
#define TOPSIGN_API TOPSIGN_C __declspec(dllexport)
#else
#define TOPSIGN_API TOPSIGN_C __attribute__((visibility("default")))
#endif

/* Version of this interface, increased with every change, so that a stale library is refused. */
TOPSIGN_API int32_t ts_interface(void);

/* Paths are numbered from the slowest to the fastest; names are null past the last. */
TOPSIGN_API const char* ts_path_name(int32_t path);
TOPSIGN_API int32_t ts_path_runs_here(int32_t path);

/* Sets the nanoseconds of work per thread; tests lower it so that small cases run on several threads. */
TOPSIGN_API void ts_set_grain(double nanoseconds);

typedef struct {
    int32_t path;
    int32_t n_threads;
} ts_run;

/* Rows of real values. */
typedef struct {
    const float* values;
    int64_t count, width;
} ts_rows;

/* Adaptive codes: n_bits of n_pool locations; low_bits is 0 for a bitmap, otherwise that of Elias-Fano (core/kept.h).
 */
typedef struct {
    int64_t n_bits, n_pool, low_bits;
} ts_layout;

/* Codes in blocks of 32: byte plane p of block b is the 32 bytes from planes + (b * code_bytes + p) * 32 on, and code i
   is lane i % 32 of block i / 32. alive is a bitmap of the codes that are searched, and ids may be null, too. Code i is
   row first_row + i; without ids, equal codes are ordered by row. */
typedef struct {
    const uint8_t* planes;
    int64_t count;
    const uint8_t* alive;
    const int64_t* ids;
    int64_t first_row;
    int64_t ascending; /* whether ids ascend */
} ts_codes;

/* At least one range of codes, searched together. */
typedef struct {
    const ts_codes* ranges;
    int64_t count;
} ts_code_ranges;

/* Trellis codes: a ring of n_steps nibbles. Step s reads the byte of nibbles s - 1 and s, and reconstructs the
   coordinates [first[s], first[s + 1]) by one of 256 rows of levels, from books[s] on; columns are the same books
   transposed. The encoder minimises the sum of weights * level^2 - 2 * weights * level * (coordinate *
   scales). The square norm of a reconstruction is the constant plus the sum of squares, (n_steps, 256). */
typedef struct {
    int64_t n_steps, n_coded;
    const int32_t* first;
    const int64_t* books;
    const int8_t* levels;
    const int8_t* columns;
    const float* weights;
    const float* scales;
    const double* squares;
    double constant;
} ts_ring;

/* Meaning of the bytes of a code: signs of 8 projections, largest of groups of 8 (a nibble each), a ring, or kept
   locations. */
enum { TS_SIGNS, TS_GROUPS, TS_RING, TS_KEPT };

/* The factor of a code, a number of 16 bits in its last two bytes: none; 2^14 over the number; or two to the power of
   (number - 2^15) / 512. A number of 0 is a factor of 0. */
enum { TS_NO_FACTOR, TS_COSINE_FACTOR, TS_LOG_FACTOR };

/* How codes are scored. code_bytes are those of a whole code, width is the length of a query. fractions are the powers
   of two with exponents 0 to 511/512. */
typedef struct {
    int32_t kind, factor;
    int64_t code_bytes, width;
    const ts_ring* ring;
    ts_layout layout;
    const float* fractions;
} ts_scoring;

/* Rounded queries, values (count, width): the score of a code is (sum of value * level) * scale + constant, times its
   factor, each step in float32. The sums fit 32 bits. */
typedef struct {
    const int16_t* values;
    const float* scales;
    const float* constants;
    int64_t count;
} ts_queries;

/* The k best of each query: (n_queries, k), row -1 if there are fewer. */
typedef struct {
    int64_t k;
    int64_t* rows;
    float* values;
} ts_best;

/* All codes that reach each query's bound, query after query, by ascending row; counts (n_queries,) of all that there
   are, of which the first `capacity` are written. */
typedef struct {
    const float* bounds;
    int64_t capacity;
    int64_t* rows;
    float* values;
    int64_t* counts;
} ts_found;

/* The randomised Hadamard rotation of size exactly width, times sqrt(width), or its transpose.
   signs: (n_rounds, ceil(width / 8)). */
typedef struct {
    ts_rows signals;
    const uint8_t* signs;
    int64_t n_rounds;
    int32_t transpose;
    float* out;
} ts_rotation;
TOPSIGN_API int32_t ts_rotate(const ts_run* run, const ts_rotation* rotation);

/* Products of signals with the columns of a matrix: out (count, n_columns), row i of it for signal rows[i] (null: i).
   A feature is multiplied by its signal's factor, and minus is subtracted (either may be null). Terms are
   added in the order of features, in float32. panels: (ceil(n_columns / 32), width, 32), columns after the last are
   zeros. */
typedef struct {
    const float* panels;
    int64_t n_columns;
    const float* minus;
    const int64_t* rows;
    int64_t count;
    float* out;
} ts_product;
TOPSIGN_API int32_t ts_multiply(const ts_run* run, const ts_rows* signals, const float* factors,
                                const ts_product* products, int64_t n_products);

/* Sum of squares, or of magnitudes, of each row, in the order of LaneSum (core/lanes.h). */
TOPSIGN_API int32_t ts_square_norms(const ts_run* run, const ts_rows* rows, double* out);
TOPSIGN_API int32_t ts_magnitude_sums(const ts_run* run, const ts_rows* rows, double* out);

/* Inner product of each row with a vector of as many values, in the same order. */
TOPSIGN_API int32_t ts_inner_products(const ts_run* run, const ts_rows* rows, const double* vector, double* out);

/* The n_bits values largest in magnitude of each row: their locations (ascending; of equal magnitudes the lower row
   wins), their packed signs, and the sum of their magnitudes. */
typedef struct {
    ts_rows projected;
    int64_t n_bits;
    int32_t* locations;
    uint8_t* signs;
    double* totals;
} ts_selection;
TOPSIGN_API int32_t ts_select(const ts_run* run, const ts_selection* selection);

TOPSIGN_API int32_t ts_pack_bits(const ts_run* run, const ts_rows* rows, uint8_t* out);

/* Packing and unpacking of adaptive codes, rows of bytes. valid: 1 if the bytes are a code that packing can produce,
   else 0. */
typedef struct {
    int32_t* locations;
    uint8_t* signs;
} ts_contents;
TOPSIGN_API int32_t ts_pack_codes(const ts_run* run, const ts_layout* layout, int64_t n_codes,
                                  const ts_contents* contents, uint8_t* out);
TOPSIGN_API int32_t ts_unpack_codes(const ts_run* run, const ts_layout* layout, const uint8_t* codes, int64_t n_codes,
                                    const ts_contents* out);
TOPSIGN_API int32_t ts_valid_codes(const ts_run* run, const ts_layout* layout, const uint8_t* codes, int64_t n_codes,
                                   uint8_t* valid);

/* Codes of groups of eight projections: the location of the largest magnitude (of equal ones the lower), plus 8 if it
   is not negative; the first group of a byte is its low nibble. totals are the sums of the largest magnitudes. */
TOPSIGN_API int32_t ts_encode_groups(const ts_run* run, const ts_rows* projected, uint8_t* out, double* totals);

/* Trellis codes of coordinates, (n_coded,) per row, each followed by its cosine factor: the cheapest closed paths. */
TOPSIGN_API int32_t ts_ring_encode(const ts_run* run, const ts_ring* ring, const ts_rows* rows, uint8_t* out);
/* Norms of reconstructions; codes are rows of `stride` bytes. */
TOPSIGN_API int32_t ts_ring_norms(const ts_run* run, const ts_ring* ring, const uint8_t* codes, int64_t n_codes,
                                  int64_t stride, double* out);

/* Levels of codes, rows of code_bytes: out (n_codes, width). */
TOPSIGN_API int32_t ts_decode(const ts_run* run, const ts_scoring* scoring, const uint8_t* codes, int64_t n_codes,
                              int8_t* out);

/* Rounds rows of real values to multiples of a step, the largest magnitude of the row over `limit`, or 1 if it is 0. */
TOPSIGN_API int32_t ts_round(const ts_run* run, const ts_rows* rows, int64_t limit, int16_t* out, float* steps);

/* Preparation of queries for trellis codes: norms and unit vectors; projections of these, as ts_multiply computes them;
   the coded ones times weights, rounded as by ts_round; and constants, inner products of the projections with those of
   the mean (may be null), over the width. */
typedef struct {
    const float* panels;
    int64_t n_columns;
    const int32_t* coded;
    const float* weights;
    int64_t n_coded, limit;
    const double* mean;
} ts_preparation;

typedef struct {
    double* norms;
    float* units;
    int16_t* values;
    float* scales;
    float* constants;
} ts_prepared;
TOPSIGN_API int32_t ts_prepare(const ts_run* run, const ts_preparation* preparation, const ts_rows* signals,
                               const ts_prepared* out);

/* Scores of all codes, (n_queries, count); the k best; and all that reach a bound. Of equal codes the lower id comes
   first. */
TOPSIGN_API int32_t ts_scores(const ts_run* run, const ts_scoring* scoring, const ts_codes* codes,
                              const ts_queries* queries, float* out);
TOPSIGN_API int32_t ts_rank(const ts_run* run, const ts_scoring* scoring, const ts_code_ranges* codes,
                            const ts_queries* queries, const ts_best* best);
TOPSIGN_API int32_t ts_within(const ts_run* run, const ts_scoring* scoring, const ts_code_ranges* codes,
                              const ts_queries* queries, const ts_found* found);

/* Entropy coding of sets of locations: `capacity` zero-padded bytes per set. */
typedef struct {
    int64_t n_sets, n_bits, n_pool, capacity;
} ts_sets;
TOPSIGN_API int32_t ts_encode_sets(const ts_run* run, const ts_sets* sets, const int32_t* locations, uint8_t* out,
                                   int64_t* lengths);
TOPSIGN_API int32_t ts_decode_sets(const ts_run* run, const ts_sets* sets, const uint8_t* bytes, int32_t* locations);

/* Sums of products of signed bytes (n_queries, width) with bytes of at most 127 (n_rows, width): out (n_queries,
   n_rows). The width is a multiple of 64. */
typedef struct {
    const int8_t* queries;
    const uint8_t* rows;
    int64_t n_queries, n_rows, width;
} ts_bytes;
TOPSIGN_API int32_t ts_byte_products(const ts_run* run, const ts_bytes* bytes, int32_t* out);

/* Codes in the order of their regions: those of region r are in ranges [starts[r], starts[r + 1]); a range is codes
   [begin, end) of a segment. */
typedef struct {
    int32_t segment, begin, end;
} ts_region_range;

typedef struct {
    ts_code_ranges segments;
    const int32_t* starts;
    const ts_region_range* ranges;
} ts_region_codes;

/* Means in groups of 16: bytes in [1, 127], of which 64 stands for 0, times the scale of their row, (n_groups, width /
   4, 16, 4) with a width that is a multiple of 64. half_norms are half of the square norm of each mean; infinite for
   the rows that fill a group. */
typedef struct {
    const uint8_t* values;
    const float* scales;
    const float* half_norms;
    int64_t n_groups, width;
} ts_means;

/* Regions in two levels: those of coarse mean c are the fine means of the groups [first[c], first[c + 1]); numbers
   (16 * n_groups) are the regions of fine means, -1 of rows that fill a group. counts are those of the living entries
   of each region. */
typedef struct {
    ts_means coarse, fine;
    int64_t n_coarse;
    const int32_t* first;
    const int32_t* numbers;
    const int64_t* counts;
} ts_regions;

/* Visits of the queries of each stratum. The regions of the base_coarse nearest coarse means are scored, and the
   contrast of a query is the difference between its best and its 16th best score. Its stratum is the number of edges,
   n_strata - 1 of them in ascending order, that the contrast reaches, or n_strata if the best score is below `least`.
   The query visits the nearest regions of the n_coarse nearest coarse means: at least n_regions, and so many that they
   have n_entries entries; all entries if n_regions is 0. The best n_candidates are compared by original signals. There
   are n_strata + 1 numbers of each. */
typedef struct {
    const double* edges;
    const int64_t* n_regions;
    const int64_t* n_entries;
    const int64_t* n_coarse;
    const int64_t* n_candidates;
    int64_t n_strata, base_coarse;
    double least;
} ts_region_rule;

/* Strata, best scores and contrasts of queries, and the regions that they choose: those of query q are
   regions[starts[q]:starts[q + 1]], the nearest first, then the others in order. Regions beyond the capacity are
   counted, not written. */
typedef struct {
    int32_t* strata;
    float* best;
    float* contrasts;
    int64_t* starts;
    int32_t* regions;
    int64_t capacity;
} ts_region_choice;
TOPSIGN_API int32_t ts_choose_regions(const ts_run* run, const ts_regions* regions, const ts_region_rule* rule,
                                      const ts_rows* units, const ts_region_choice* choice);

/* Regions that queries visit, as ts_region_choice has them. */
typedef struct {
    const int64_t* starts;
    const int32_t* regions;
} ts_visits;

/* As ts_rank, of the codes in the regions that each query visits. */
TOPSIGN_API int32_t ts_visit(const ts_run* run, const ts_scoring* scoring, const ts_region_codes* codes,
                             const ts_visits* visits, const ts_queries* queries, const ts_best* best);

/* Original signals of each segment: rows of values, each times its scale, in float32; and the queries, both without
   `minus` (may be null). Scores are inner products, or correlations, in double precision. Values are read in blocks of
   block_bytes: `verified` has a byte for each, not 0 if it may be read; a search that needs others sets their bytes of
   `wanted`, and has no result. Both are null if all may be read. */
enum { TS_FLOAT32, TS_FLOAT16, TS_INT8 };
typedef struct {
    const void* values;
    const float* scales;
    const uint8_t* verified;
    uint8_t* wanted;
} ts_original_rows;

typedef struct {
    int32_t type, is_inner;
    const ts_original_rows* segments;
    const float* minus;
    ts_rows queries;
    int64_t block_bytes;
} ts_originals;

/* Neighbours of each query, (n_queries, k), row and id -1 if there are fewer: scores by code and, with originals, exact
   ones, which decide the order; and per query stratum and entries visited. */
typedef struct {
    int64_t k;
    int64_t* rows;
    int64_t* ids;
    float* values;
    double* inner;
    double* correlations;
    int32_t* strata;
    int64_t* visited;
} ts_neighbors;

/* Chooses regions, compares the codes there, and compares candidates by originals, unless they are null. The status is
   3 if blocks of originals must be read first. */
TOPSIGN_API int32_t ts_search_regions(const ts_run* run, const ts_scoring* scoring, const ts_region_codes* codes,
                                      const ts_regions* regions, const ts_region_rule* rule, const ts_rows* units,
                                      const ts_queries* queries, const ts_originals* originals,
                                      const ts_neighbors* found);

/* The same of signals, which are prepared first, and are the queries of the originals. The status is 2 if a norm is not
   in [1e-18, 1e18], or if fewer than k entries are found. */
typedef struct {
    const ts_preparation* preparation;
    const ts_scoring* scoring;
    const ts_region_codes* codes;
    const ts_regions* regions;
    const ts_region_rule* rule;
    const ts_originals* originals;
} ts_region_plan;
TOPSIGN_API int32_t ts_search_plan(const ts_run* run, const ts_region_plan* plan, const ts_rows* signals,
                                   const ts_neighbors* found);

/* Compares each query with the entries in some rows exactly: those of query q are
   rows[starts[q]:starts[q + 1]]. */
TOPSIGN_API int32_t ts_compare_originals(const ts_run* run, const ts_code_ranges* codes, const ts_originals* originals,
                                         const int64_t* starts, const int64_t* rows, double* inner,
                                         double* correlations);
