// Function table of an instruction set.
#pragma once

#include "../topsign.h"

namespace topsign {

struct Functions {
    const char* name;
    bool (*runs_here)();
    void (*rotate)(int n_threads, const ts_rotation& rotation);
    void (*multiply)(int n_threads, const ts_rows& signals, const float* factors, const ts_product* products,
                     int64_t n_products);
    void (*square_norms)(int n_threads, const ts_rows& rows, double* out);
    void (*magnitude_sums)(int n_threads, const ts_rows& rows, double* out);
    void (*inner_products)(int n_threads, const ts_rows& rows, const double* vector, double* out);
    void (*select)(int n_threads, const ts_selection& selection);
    void (*pack_bits)(int n_threads, const ts_rows& rows, uint8_t* out);
    void (*encode_groups)(int n_threads, const ts_rows& projected, uint8_t* out, double* totals);
    void (*ring_encode)(int n_threads, const ts_ring& ring, const ts_rows& rows, uint8_t* out);
    void (*round)(int n_threads, const ts_rows& rows, int64_t limit, int16_t* out, float* steps);
    void (*prepare)(int n_threads, const ts_preparation& preparation, const ts_rows& signals, const ts_prepared& out);
    void (*scores)(int n_threads, const ts_scoring& scoring, const ts_codes& codes, const ts_queries& queries,
                   float* out);
    void (*rank)(int n_threads, const ts_scoring& scoring, const ts_code_ranges& codes, const ts_queries& queries,
                 const ts_best& best);
    void (*within)(int n_threads, const ts_scoring& scoring, const ts_code_ranges& codes, const ts_queries& queries,
                   const ts_found& found);
    void (*byte_products)(int n_threads, const ts_bytes& bytes, int32_t* out);
    void (*choose_regions)(int n_threads, const ts_regions& regions, const ts_region_rule& rule, const ts_rows& units,
                           const ts_region_choice& choice);
    void (*visit)(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes, const ts_visits& visits,
                  const ts_queries& queries, const ts_best& best);
    bool (*search_regions)(int n_threads, const ts_scoring& scoring, const ts_region_codes& codes,
                           const ts_regions& regions, const ts_region_rule& rule, const ts_rows& units,
                           const ts_queries& queries, const ts_originals* originals, const ts_neighbors& found);
    bool (*search_plan)(int n_threads, const ts_region_plan& plan, const ts_rows& signals, const ts_neighbors& found);
    void (*compare_originals)(int n_threads, const ts_code_ranges& codes, const ts_originals& originals,
                              const int64_t* starts, const int64_t* rows, double* inner, double* correlations);
};

extern const Functions kPortable, kAvx2, kAvx512, kNeon;

}  // namespace topsign
