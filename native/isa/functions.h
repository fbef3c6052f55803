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
    void (*mismatches)(int n_threads, const ts_codes& codes, const ts_signs& queries, int32_t* out);
    void (*score_sums)(int n_threads, const ts_codes& codes, const ts_rows& queries, float* out);
    void (*rank_mismatches)(int n_threads, const ts_code_ranges& codes, const ts_signs& queries, const ts_best& best);
    void (*within_mismatches)(int n_threads, const ts_code_ranges& codes, const ts_signs& queries,
                              const ts_found& found);
    void (*rank_scores)(int n_threads, const ts_code_ranges& codes, const ts_rows& queries, const ts_best& best);
    void (*within_scores)(int n_threads, const ts_code_ranges& codes, const ts_rows& queries, const ts_found& found);
    void (*visit_mismatches)(int n_threads, const ts_layout& layout, const ts_visits& visits, const ts_signs& queries,
                             const ts_best& best);
    void (*visit_scores)(int n_threads, const ts_layout& layout, const ts_visits& visits, const ts_rows& queries,
                         const ts_best& best);
    void (*trellis_round)(int n_threads, const ts_trellis_rounding& rounding);
    void (*trellis_encode)(int n_threads, const ts_trellis_signals* cells, int64_t n_cells, uint8_t* codes);
    void (*trellis_decode)(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, int8_t* out);
    void (*trellis_weights)(int n_threads, const ts_trellis& trellis, const ts_trellis_codes& codes, float* out);
    void (*trellis_sums)(int n_threads, const ts_trellis_cell& cell, const ts_trellis_codes& codes, int32_t* out);
    void (*rank_trellis)(int n_threads, const ts_trellis_ranges& codes, const ts_best& best);
    void (*within_trellis)(int n_threads, const ts_trellis_ranges& codes, const ts_found& found);
    void (*visit_trellis)(int n_threads, const ts_trellis_cells& cells, const ts_visits& visits, const ts_best& best);
    void (*byte_products)(int n_threads, const ts_bytes& bytes, int32_t* out);
    void (*choose_regions)(int n_threads, const ts_regions& regions, const ts_region_rule& rule, const ts_rows& queries,
                           const ts_region_choice& choice);
};

extern const Functions kPortable, kAvx2, kAvx512, kNeon;

}  // namespace topsign
