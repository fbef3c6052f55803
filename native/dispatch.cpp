// The C interface: dispatches calls to the requested path.
//
// A path is one file of isa/: it names an instruction set, says whether this processor has it, and fills a table of
// functions (isa/functions.h) with the templates of kernels/, which it instantiates for itself. Another processor is
// another such file and a line in kPaths. A new kernel is a template in kernels/, an entry in Functions, a line in
// kernels/functions.h, and a function here. Functions in core/ need no instruction set and are called directly.
#include <new>

#include "core/codes.h"
#include "core/sets.h"
#include "core/target.h"
#include "core/threads.h"
#include "isa/functions.h"

namespace topsign {
namespace {

const Functions* const kPaths[] = {
    &kPortable,
#if TOPSIGN_X86
    &kAvx2,
    &kAvx512,
#endif
#if TOPSIGN_ARM
    &kNeon,
#endif
};

const Functions& functions(const ts_run* run) { return *kPaths[run->path]; }

// Turns an allocation failure into the status that crosses the C interface.
template <class Body>
int32_t guarded(const Body& body) {
    try {
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace
}  // namespace topsign

using namespace topsign;

int32_t ts_interface() { return 14; }

const char* ts_path_name(int32_t path) {
    const bool exists = path >= 0 && path < int32_t(sizeof kPaths / sizeof *kPaths);
    return exists ? kPaths[path]->name : nullptr;
}

int32_t ts_path_runs_here(int32_t path) { return kPaths[path]->runs_here(); }

void ts_set_grain(double nanoseconds) { grain = nanoseconds; }

int32_t ts_rotate(const ts_run* run, const ts_rotation* rotation) {
    return guarded([&] { functions(run).rotate(run->n_threads, *rotation); });
}

int32_t ts_multiply(const ts_run* run, const ts_rows* signals, const float* factors, const ts_product* products,
                    int64_t n_products) {
    return guarded([&] { functions(run).multiply(run->n_threads, *signals, factors, products, n_products); });
}

int32_t ts_square_norms(const ts_run* run, const ts_rows* rows, double* out) {
    return guarded([&] { functions(run).square_norms(run->n_threads, *rows, out); });
}

int32_t ts_magnitude_sums(const ts_run* run, const ts_rows* rows, double* out) {
    return guarded([&] { functions(run).magnitude_sums(run->n_threads, *rows, out); });
}

int32_t ts_inner_products(const ts_run* run, const ts_rows* rows, const double* vector, double* out) {
    return guarded([&] { functions(run).inner_products(run->n_threads, *rows, vector, out); });
}

int32_t ts_select(const ts_run* run, const ts_selection* selection) {
    return guarded([&] { functions(run).select(run->n_threads, *selection); });
}

int32_t ts_pack_bits(const ts_run* run, const ts_rows* rows, uint8_t* out) {
    return guarded([&] { functions(run).pack_bits(run->n_threads, *rows, out); });
}

int32_t ts_pack_codes(const ts_run* run, const ts_layout* layout, int64_t n_codes, const ts_contents* contents,
                      uint8_t* out) {
    return guarded([&] { pack_codes(run->n_threads, *layout, n_codes, *contents, out); });
}

int32_t ts_unpack_codes(const ts_run* run, const ts_codes* codes, const ts_contents* out) {
    return guarded([&] { unpack_codes(run->n_threads, *codes, *out); });
}

int32_t ts_valid_codes(const ts_run* run, const ts_codes* codes, uint8_t* valid) {
    return guarded([&] { valid_codes(run->n_threads, *codes, valid); });
}

int32_t ts_mismatches(const ts_run* run, const ts_codes* codes, const ts_signs* queries, int32_t* out) {
    return guarded([&] { functions(run).mismatches(run->n_threads, *codes, *queries, out); });
}

int32_t ts_score_sums(const ts_run* run, const ts_codes* codes, const ts_rows* queries, float* out) {
    return guarded([&] { functions(run).score_sums(run->n_threads, *codes, *queries, out); });
}

int32_t ts_rank_mismatches(const ts_run* run, const ts_code_ranges* codes, const ts_signs* queries,
                           const ts_best* best) {
    return guarded([&] { functions(run).rank_mismatches(run->n_threads, *codes, *queries, *best); });
}

int32_t ts_within_mismatches(const ts_run* run, const ts_code_ranges* codes, const ts_signs* queries,
                             const ts_found* found) {
    return guarded([&] { functions(run).within_mismatches(run->n_threads, *codes, *queries, *found); });
}

int32_t ts_rank_scores(const ts_run* run, const ts_code_ranges* codes, const ts_rows* queries, const ts_best* best) {
    return guarded([&] { functions(run).rank_scores(run->n_threads, *codes, *queries, *best); });
}

int32_t ts_within_scores(const ts_run* run, const ts_code_ranges* codes, const ts_rows* queries,
                         const ts_found* found) {
    return guarded([&] { functions(run).within_scores(run->n_threads, *codes, *queries, *found); });
}

int32_t ts_encode_sets(const ts_run* run, const ts_sets* sets, const int32_t* locations, uint8_t* out,
                       int64_t* lengths) {
    return guarded([&] { encode_sets(run->n_threads, *sets, locations, out, lengths); });
}

int32_t ts_decode_sets(const ts_run* run, const ts_sets* sets, const uint8_t* bytes, int32_t* locations) {
    return guarded([&] { decode_sets(run->n_threads, *sets, bytes, locations); });
}

int32_t ts_trellis_round(const ts_run* run, const ts_trellis_rounding* rounding) {
    return guarded([&] { functions(run).trellis_round(run->n_threads, *rounding); });
}

int32_t ts_trellis_encode(const ts_run* run, const ts_trellis_signals* cells, int64_t n_cells, uint8_t* codes) {
    return guarded([&] { functions(run).trellis_encode(run->n_threads, cells, n_cells, codes); });
}

int32_t ts_trellis_decode(const ts_run* run, const ts_trellis* trellis, const ts_trellis_codes* codes, int8_t* out) {
    return guarded([&] { functions(run).trellis_decode(run->n_threads, *trellis, *codes, out); });
}

int32_t ts_trellis_weights(const ts_run* run, const ts_trellis* trellis, const ts_trellis_codes* codes, float* out) {
    return guarded([&] { functions(run).trellis_weights(run->n_threads, *trellis, *codes, out); });
}

int32_t ts_trellis_sums(const ts_run* run, const ts_trellis_cell* cell, const ts_trellis_codes* codes, int32_t* out) {
    return guarded([&] { functions(run).trellis_sums(run->n_threads, *cell, *codes, out); });
}

int32_t ts_rank_trellis(const ts_run* run, const ts_trellis_ranges* codes, const ts_best* best) {
    return guarded([&] { functions(run).rank_trellis(run->n_threads, *codes, *best); });
}

int32_t ts_within_trellis(const ts_run* run, const ts_trellis_ranges* codes, const ts_found* found) {
    return guarded([&] { functions(run).within_trellis(run->n_threads, *codes, *found); });
}

int32_t ts_visit_mismatches(const ts_run* run, const ts_layout* layout, const ts_visits* visits,
                            const ts_signs* queries, const ts_best* best) {
    return guarded([&] { functions(run).visit_mismatches(run->n_threads, *layout, *visits, *queries, *best); });
}

int32_t ts_visit_scores(const ts_run* run, const ts_layout* layout, const ts_visits* visits, const ts_rows* queries,
                        const ts_best* best) {
    return guarded([&] { functions(run).visit_scores(run->n_threads, *layout, *visits, *queries, *best); });
}

int32_t ts_visit_trellis(const ts_run* run, const ts_trellis_cells* cells, const ts_visits* visits,
                         const ts_best* best) {
    return guarded([&] { functions(run).visit_trellis(run->n_threads, *cells, *visits, *best); });
}

int32_t ts_byte_products(const ts_run* run, const ts_bytes* bytes, int32_t* out) {
    return guarded([&] { functions(run).byte_products(run->n_threads, *bytes, out); });
}

int32_t ts_choose_regions(const ts_run* run, const ts_regions* regions, const ts_region_rule* rule,
                          const ts_rows* queries, const ts_region_choice* choice) {
    return guarded([&] { functions(run).choose_regions(run->n_threads, *regions, *rule, *queries, *choice); });
}
