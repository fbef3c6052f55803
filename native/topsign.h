/* The C interface of the core: raw arrays in, raw arrays out. Only the bytes of codes are not trusted.

   Arrays are C-ordered and dense. Bits are packed little-endian, bit 1 meaning "projected >= 0" (or a sign of +1).
   Kernels take how they are run and a struct of what they work on, and return 0, or 1 when memory ran out. Results are
   the same bits on every path and thread count; arbitrary bytes in place of codes give some result and stay inside
   every array. */
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

/* Of adaptive codes; low_bits is -1 in the fast layout, 0 for a bitmap, otherwise of Elias-Fano (core/layout.h), and -2
   says that a code is the signs of the whole pool. */
typedef struct {
    int64_t n_bits, n_pool, low_bits;
} ts_layout;

/* Codes; alive is a bitmap of the codes that are searched, weights multiply their scores, ids ascend, and all three may
   be null. The code at position i is row first_row + i; without ids, equal codes are ordered by row. */
typedef struct {
    ts_layout layout;
    const uint8_t* data;
    int64_t count;
    const uint8_t* alive;
    const float* weights;
    const int64_t* ids;
    int64_t first_row;
} ts_codes;

/* At least one range of codes, all of one layout, searched together. */
typedef struct {
    const ts_codes* ranges;
    int64_t count;
} ts_code_ranges;

/* Packed signs of queries; masks (of the bits to compare, only with low_bits -2) may be null. */
typedef struct {
    const uint8_t* bits;
    const uint8_t* masks;
    int64_t count;
} ts_signs;

/* The k best of each query: (n_queries, k), row -1 if there are fewer. values: int32 or float. */
typedef struct {
    int64_t k;
    int64_t* rows;
    void* values;
} ts_best;

/* All codes within each query's bound (int32 or float), query after query, by ascending row; counts (n_queries,) of all
   that there are, of which the first `capacity` are written. */
typedef struct {
    const void* bounds;
    int64_t capacity;
    int64_t* rows;
    void* values;
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
   A feature of the signal is multiplied with the signal's factor and lessened by minus (either may be null). Terms are
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

/* Packing and unpacking. valid: 1 if the bytes are a code that packing can produce, else 0. */
typedef struct {
    int32_t* locations;
    uint8_t* signs;
} ts_contents;
TOPSIGN_API int32_t ts_pack_codes(const ts_run* run, const ts_layout* layout, int64_t n_codes,
                                  const ts_contents* contents, uint8_t* out);
TOPSIGN_API int32_t ts_unpack_codes(const ts_run* run, const ts_codes* codes, const ts_contents* out);
TOPSIGN_API int32_t ts_valid_codes(const ts_run* run, const ts_codes* codes, uint8_t* valid);

/* Bits of each query that differ from each code: out (n_queries, n_codes). */
TOPSIGN_API int32_t ts_mismatches(const ts_run* run, const ts_codes* codes, const ts_signs* queries, int32_t* out);

/* Sum of each query's values at a code's locations, each with the code's sign: out (n_queries, n_codes). */
TOPSIGN_API int32_t ts_score_sums(const ts_run* run, const ts_codes* codes, const ts_rows* queries, float* out);

/* By mismatches (fewer is better), or by score: the sum of ts_score_sums times the code's weight, higher is better.
   Of equal codes the lower id comes first. */
TOPSIGN_API int32_t ts_rank_mismatches(const ts_run* run, const ts_code_ranges* codes, const ts_signs* queries,
                                       const ts_best* best);
TOPSIGN_API int32_t ts_within_mismatches(const ts_run* run, const ts_code_ranges* codes, const ts_signs* queries,
                                         const ts_found* found);
TOPSIGN_API int32_t ts_rank_scores(const ts_run* run, const ts_code_ranges* codes, const ts_rows* queries,
                                   const ts_best* best);
TOPSIGN_API int32_t ts_within_scores(const ts_run* run, const ts_code_ranges* codes, const ts_rows* queries,
                                     const ts_found* found);

/* Entropy coding of sets of locations: `capacity` zero-padded bytes per set. */
typedef struct {
    int64_t n_sets, n_bits, n_pool, capacity;
} ts_sets;
TOPSIGN_API int32_t ts_encode_sets(const ts_run* run, const ts_sets* sets, const int32_t* locations, uint8_t* out,
                                   int64_t* lengths);
TOPSIGN_API int32_t ts_decode_sets(const ts_run* run, const ts_sets* sets, const uint8_t* bytes, int32_t* locations);

/* Square norm of a reconstruction: constant + unit * sum of level * (level * quadratic + linear), an exact integer of
   32 bits; the rest in float32. Quadratic and linear coefficients are at most 2^15 - 1 and 2^22. */
typedef struct {
    const int32_t* linear;
    const int16_t* quadratic;
    float unit, constant;
} ts_trellis_norm;

/* Trellis codes (kernels/trellis.h): a ring of n_bits bits in code_bytes bytes; offsets (n_coded,) ascend below n_bits,
   multipliers and addends are 256 pairs that coordinates take in turn, levels 128 odd numbers, antisymmetric. */
typedef struct {
    int64_t n_bits, window, n_coded, code_bytes;
    const int32_t* offsets;
    const uint16_t* multipliers;
    const uint16_t* addends;
    const int8_t* levels;
    ts_trellis_norm norm;
} ts_trellis;

/* Cost that the encoder minimises: sum of (squares * level^2 >> square_shifts) - (target * level << shifts) over
   coordinates, target being a projection times its scale, rounded and at most limit. Shifts are equal where offsets
   are. */
typedef struct {
    const float* scales;
    const int32_t* squares;
    const int32_t* square_shifts;
    const int32_t* shifts;
    int32_t limit;
} ts_trellis_costs;

/* Trellis codes of one design. */
typedef struct {
    const uint8_t* data;
    int64_t count;
} ts_trellis_codes;

/* Rounded queries, (count, n_coded): the score is (sum of value * level) * scale + constant, over the code's norm.
   If fine is not null, values have a second digit: they are value * 2^fine_bits + fine, and their sums fit 32 bits.
 */
typedef struct {
    const int8_t* values;
    const int8_t* fine;
    int64_t fine_bits;
    const float* scales;
    const float* constants;
    int64_t count;
} ts_trellis_queries;

/* A cell: the tables of its codes, and the queries rounded for these tables. */
typedef struct {
    ts_trellis trellis;
    ts_trellis_queries queries;
} ts_trellis_cell;

/* Codes of one cell in an array: all of them, or those at the ascending positions, `count` in either case. alive (a
   bitmap over the array), positions and ids (of the whole array, ascending) may be null; rows are as in ts_codes. If
   fractions is not null, scores are multiplied by the norms in the last two bytes of codes: s, little-endian, stands
   for fractions[s % 512] * 2^(s / 512 - 64), and zero for zero. */
typedef struct {
    int64_t cell, first_row;
    const uint8_t* data;
    const uint8_t* alive;
    const int64_t* ids;
    const float* fractions;
    int64_t count;
    const int64_t* positions;
} ts_trellis_range;

/* At least one cell, and ranges of their codes, searched together; the cells have the same number of queries. */
typedef struct {
    const ts_trellis_cell* cells;
    int64_t n_cells;
    const ts_trellis_range* ranges;
    int64_t n_ranges;
} ts_trellis_ranges;

/* Signals of one cell: coordinates (count, n_coded), and the rows of their codes (null: the first ones). The mark goes
   into the bits of byte n_bits / 8 that the ring leaves. */
typedef struct {
    ts_trellis trellis;
    ts_trellis_costs costs;
    const float* values;
    int64_t count;
    const int64_t* rows;
    int64_t mark;
} ts_trellis_signals;

/* Projections of queries, rounded for each cell. Cell c reads the columns numbered columns[ends[c - 1]] up to, but not
   at, columns[ends[c]], times their weights. values are multiples of the query's scale in [-127, 127], or, if fine_bits
   is not 0, of 2^fine_bits times the scale, and fine is the rest. Both have the queries of one cell after those of
   another, (count, n_columns of the cell) each; scales are (n_cells, count). */
typedef struct {
    ts_rows projected;
    const int64_t* columns;
    const double* weights;
    int64_t n_cells;
    const int64_t* ends;
    const int64_t* fine_bits;
    int8_t* values;
    int8_t* fine;
    float* scales;
} ts_trellis_rounding;
TOPSIGN_API int32_t ts_trellis_round(const ts_run* run, const ts_trellis_rounding* rounding);

/* Codes of the signals of all cells, of one size: (n_codes, code_bytes). */
TOPSIGN_API int32_t ts_trellis_encode(const ts_run* run, const ts_trellis_signals* cells, int64_t n_cells,
                                      uint8_t* codes);
/* Levels of each code, (n_codes, n_coded); one over the norm of each; and exact sums, (n_queries, n_codes). */
TOPSIGN_API int32_t ts_trellis_decode(const ts_run* run, const ts_trellis* trellis, const ts_trellis_codes* codes,
                                      int8_t* out);
TOPSIGN_API int32_t ts_trellis_weights(const ts_run* run, const ts_trellis* trellis, const ts_trellis_codes* codes,
                                       float* out);
TOPSIGN_API int32_t ts_trellis_sums(const ts_run* run, const ts_trellis_cell* cell, const ts_trellis_codes* codes,
                                    int32_t* out);
/* By score, as ts_rank_scores and ts_within_scores. */
TOPSIGN_API int32_t ts_rank_trellis(const ts_run* run, const ts_trellis_ranges* codes, const ts_best* best);
TOPSIGN_API int32_t ts_within_trellis(const ts_run* run, const ts_trellis_ranges* codes, const ts_found* found);

/* Entries of a segment in the order of their regions: those of region r are at positions[starts[r]] up to, but not at,
   starts[r + 1]. alive, weights, ids and rows are as in ts_codes. */
typedef struct {
    const uint8_t* data;
    const uint8_t* alive;
    const float* weights;
    const int64_t* ids;
    int64_t first_row;
    const int32_t* positions;
    const int32_t* starts;
} ts_region_segment;

/* Segments of codes, and the regions that each query visits, each once: those of query q are regions[starts[q]] up to,
   but not at, starts[q + 1]. */
typedef struct {
    const ts_region_segment* segments;
    int64_t n_segments, n_regions, code_bytes, n_queries;
    const int64_t* starts;
    const int32_t* regions;
} ts_visits;

/* Cells of trellis codes; the number of a code's cell is in the byte cell_byte of it, under cell_mask. fractions are
   as in ts_trellis_range. */
typedef struct {
    const ts_trellis_cell* cells;
    int64_t n_cells, cell_byte;
    int32_t cell_mask;
    const float* fractions;
} ts_trellis_cells;

/* As ts_rank_mismatches, ts_rank_scores and ts_rank_trellis, of the entries in the regions that each query visits. */
TOPSIGN_API int32_t ts_visit_mismatches(const ts_run* run, const ts_layout* layout, const ts_visits* visits,
                                        const ts_signs* queries, const ts_best* best);
TOPSIGN_API int32_t ts_visit_scores(const ts_run* run, const ts_layout* layout, const ts_visits* visits,
                                    const ts_rows* queries, const ts_best* best);
TOPSIGN_API int32_t ts_visit_trellis(const ts_run* run, const ts_trellis_cells* cells, const ts_visits* visits,
                                     const ts_best* best);

/* Sums of products of signed bytes (n_queries, width) with bytes of at most 127 (n_rows, width): out (n_queries,
   n_rows). The width is a multiple of 64. */
typedef struct {
    const int8_t* queries;
    const uint8_t* rows;
    int64_t n_queries, n_rows, width;
} ts_bytes;
TOPSIGN_API int32_t ts_byte_products(const ts_run* run, const ts_bytes* bytes, int32_t* out);

/* Means of regions: bytes in [0, 127], of which 64 stands for 0, times the scale of their row; (n_regions, width) with
   a width that is a multiple of 64. counts are those of the living entries of each region. */
typedef struct {
    const uint8_t* means;
    const float* scales;
    const float* half_norms; /* half of the square norm of each mean */
    const int64_t* counts;
    int64_t n_regions, width;
} ts_regions;

/* What queries of each stratum visit: at least so many regions, and so many that they have n_entries entries. The
   stratum of a query is the number of edges, n_strata - 1 of them in ascending order, that its best score reaches.
   Queries of a stratum without regions, and those whose best score is below `least`, choose none. */
typedef struct {
    const double* edges;
    const int64_t* n_regions;
    const int64_t* n_entries;
    int64_t n_strata;
    double least;
} ts_region_rule;

/* The best score of each query, and the regions that it chooses, nearest first, as in ts_visits. Regions beyond the
   capacity are counted, not written. */
typedef struct {
    float* best;
    int64_t* starts;
    int32_t* regions;
    int64_t capacity;
} ts_region_choice;
TOPSIGN_API int32_t ts_choose_regions(const ts_run* run, const ts_regions* regions, const ts_region_rule* rule,
                                      const ts_rows* queries, const ts_region_choice* choice);
