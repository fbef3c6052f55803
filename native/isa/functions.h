// What an instruction set provides: one table of functions.
#pragma once

#include "../topsign.h"

namespace topsign {

struct Functions {
    const char* name;
    bool (*runs_here)();
    void (*rotate)(int n_threads, const ts_rotation& rotation);
    void (*square_norms)(int n_threads, const ts_rows& rows, double* out);
    void (*magnitude_sums)(int n_threads, const ts_rows& rows, double* out);
    void (*select)(int n_threads, const ts_selection& selection);
    void (*pack_bits)(int n_threads, const ts_rows& rows, uint8_t* out);
    void (*mismatches)(int n_threads, const ts_codes& codes, const ts_signs& queries, int32_t* out);
    void (*score_sums)(int n_threads, const ts_codes& codes, const ts_rows& queries, float* out);
    void (*search_mismatches)(int n_threads, const ts_codes& codes, const ts_signs& queries, const ts_best& best);
    void (*within_mismatches)(int n_threads, const ts_codes& codes, const ts_signs& queries, const ts_found& found);
    void (*search_scores)(int n_threads, const ts_codes& codes, const ts_rows& queries, const ts_best& best);
    void (*within_scores)(int n_threads, const ts_codes& codes, const ts_rows& queries, const ts_found& found);
};

extern const Functions kPortable, kAvx2;

}  // namespace topsign
