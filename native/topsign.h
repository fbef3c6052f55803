// The C interface of the core: raw arrays in, raw arrays out. Nothing is checked here.
//
// Arrays are C-ordered and dense. Bits are packed little-endian, bit 1 meaning "projected >= 0" (or a
// sign of +1). Every function but the first two takes the path to run and a number of threads, and
// returns 0, or 1 when memory ran out. Results are the same bits on every path and thread count.
#pragma once

#include <cstdint>

#if defined(_WIN32)
#define TOPSIGN_API extern "C" __declspec(dllexport)
#else
#define TOPSIGN_API extern "C" __attribute__((visibility("default")))
#endif

enum Path : int { kScalar = 0, kAvx2 = 1 };

// Raised whenever a signature below changes, so that a stale library is refused and not called.
TOPSIGN_API int ts_interface();
TOPSIGN_API int ts_supports(int path);

// The randomised Hadamard rotation of size exactly n_features, times sqrt(n_features), or its transpose.
// signs: (n_rounds, ceil(n_features/8)).
TOPSIGN_API int ts_rotate(int path, int n_threads, const float* signals, int64_t n_signals,
                          int64_t n_features, const uint8_t* signs, int64_t n_rounds, int64_t transpose, float* out);

// Sum of squares of each signal, in the order of LaneSum (common.h).
TOPSIGN_API int ts_square_norms(int path, int n_threads, const float* signals, int64_t n_signals,
                                int64_t n_features, double* out);

// The n_bits values largest in magnitude of each row: their locations (ascending; of equal magnitudes the
// lower row wins), their packed signs, and the sum of their magnitudes.
TOPSIGN_API int ts_select(int path, int n_threads, const float* projected, int64_t n_signals,
                          int64_t n_pool, int64_t n_bits, int32_t* locations, uint8_t* signs, double* totals);

// Sum of the magnitudes of each row, in the order of LaneSum.
TOPSIGN_API int ts_magnitude_sums(int path, int n_threads, const float* projected, int64_t n_signals, int64_t n_pool,
                                  double* out);

TOPSIGN_API int ts_pack_bits(int path, int n_threads, const float* projected, int64_t n_signals,
                             int64_t n_pool, uint8_t* out);

// Adaptive codes. low_bits describes the layout: -1 fast, 0 a bitmap, otherwise Elias-Fano (layout.h).
TOPSIGN_API int ts_pack_codes(int path, int n_threads, const int32_t* locations, const uint8_t* signs,
                              int64_t n_codes, int64_t n_bits, int64_t n_pool, int64_t low_bits, uint8_t* out);
TOPSIGN_API int ts_unpack_codes(int path, int n_threads, const uint8_t* codes, int64_t n_codes,
                                int64_t n_bits, int64_t n_pool, int64_t low_bits, int32_t* locations,
                                uint8_t* signs);

// Whether each code is one that ts_pack_codes could have made: 1 or 0.
TOPSIGN_API int ts_valid_codes(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                               int64_t n_pool, int64_t low_bits, uint8_t* out);

// Bits of each query that differ from each code: out (n_queries, n_codes). query_bits: packed signs.
TOPSIGN_API int ts_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                              int64_t n_pool, int64_t low_bits, const uint8_t* query_bits, int64_t n_queries,
                              int32_t* out);

// Sum of each query's values at a code's locations, each with the code's sign: out (n_queries, n_codes).
TOPSIGN_API int ts_score_sums(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                              int64_t n_pool, int64_t low_bits, const float* queries, int64_t n_queries,
                              float* out);

// The k codes with fewest mismatches to each query, by mismatches, then position: (n_queries, k), position -1 where
// there are fewer. alive: a bitmap of codes, or null for all. low_bits -2: codes are the signs of the whole pool,
// compared under each query's mask (packed like query_bits) unless masks is null.
TOPSIGN_API int ts_search_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                                     int64_t n_pool, int64_t low_bits, const uint8_t* alive,
                                     const uint8_t* query_bits, const uint8_t* masks, int64_t n_queries, int64_t k,
                                     int64_t* positions, int32_t* mismatches);

// Every code within each query's radius, query after query, by position; counts (n_queries,) of all that there are,
// of which the first `capacity` are written.
TOPSIGN_API int ts_within_mismatches(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                                     int64_t n_pool, int64_t low_bits, const uint8_t* alive,
                                     const uint8_t* query_bits, const uint8_t* masks, int64_t n_queries,
                                     const int32_t* radii, int64_t capacity, int64_t* positions, int32_t* mismatches,
                                     int64_t* counts);

// The same by score: the sum of ts_score_sums times the code's weight (weights null: one), higher being better.
TOPSIGN_API int ts_search_scores(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                                 int64_t n_pool, int64_t low_bits, const uint8_t* alive, const float* weights,
                                 const float* queries, int64_t n_queries, int64_t k, int64_t* positions,
                                 float* scores);
TOPSIGN_API int ts_within_scores(int path, int n_threads, const uint8_t* codes, int64_t n_codes, int64_t n_bits,
                                 int64_t n_pool, int64_t low_bits, const uint8_t* alive, const float* weights,
                                 const float* queries, int64_t n_queries, const float* thresholds, int64_t capacity,
                                 int64_t* positions, float* scores, int64_t* counts);

// Sets of locations near their entropy: an arithmetic coder, `capacity` zero-padded bytes a set.
TOPSIGN_API int ts_encode_sets(int path, int n_threads, const int32_t* locations, int64_t n_sets,
                               int64_t n_bits, int64_t n_pool, int64_t capacity, uint8_t* out,
                               int64_t* lengths);
TOPSIGN_API int ts_decode_sets(int path, int n_threads, const uint8_t* bytes, int64_t n_sets, int64_t n_bits,
                               int64_t n_pool, int64_t capacity, int32_t* locations);
