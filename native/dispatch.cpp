// The C interface: dispatches calls to the requested path.
//
// A path is one file of isa/: it names an instruction set, says whether this processor has it, and fills a table of
// functions (isa/functions.h) with the templates of kernels/, which it instantiates for itself. Another processor is
// another such file and a line in kPaths. A new kernel is a template in kernels/, an entry in Functions, a line in
// kernels/functions.h, and a function here. Functions in core/ need no instruction set and are called directly.
#include <new>

#include "core/kept.h"
#include "core/sets.h"
#include "core/target.h"
#include "core/threads.h"
#include "isa/functions.h"
#include "kernels/levels.h"

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

constexpr int32_t kMustRead = 3;  // status of searches that want blocks of originals

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

int32_t ts_interface() { return 19; }

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

int32_t ts_unpack_codes(const ts_run* run, const ts_layout* layout, const uint8_t* codes, int64_t n_codes,
                        const ts_contents* out) {
    return guarded([&] { unpack_codes(run->n_threads, *layout, codes, n_codes, *out); });
}

int32_t ts_valid_codes(const ts_run* run, const ts_layout* layout, const uint8_t* codes, int64_t n_codes,
                       uint8_t* valid) {
    return guarded([&] { valid_codes(run->n_threads, *layout, codes, n_codes, valid); });
}

int32_t ts_encode_groups(const ts_run* run, const ts_rows* projected, uint8_t* out, double* totals) {
    return guarded([&] { functions(run).encode_groups(run->n_threads, *projected, out, totals); });
}

int32_t ts_ring_encode(const ts_run* run, const ts_ring* ring, const ts_rows* rows, uint8_t* out) {
    return guarded([&] { functions(run).ring_encode(run->n_threads, *ring, *rows, out); });
}

int32_t ts_ring_norms(const ts_run* run, const ts_ring* ring, const uint8_t* codes, int64_t n_codes, int64_t stride,
                      double* out) {
    return guarded([&] { ring_norms(run->n_threads, *ring, codes, n_codes, stride, out); });
}

int32_t ts_decode(const ts_run* run, const ts_scoring* scoring, const uint8_t* codes, int64_t n_codes, int8_t* out) {
    return guarded([&] { decode_levels(run->n_threads, *scoring, codes, n_codes, out); });
}

int32_t ts_round(const ts_run* run, const ts_rows* rows, int64_t limit, int16_t* out, float* steps) {
    return guarded([&] { functions(run).round(run->n_threads, *rows, limit, out, steps); });
}

int32_t ts_prepare(const ts_run* run, const ts_preparation* preparation, const ts_rows* signals,
                   const ts_prepared* out) {
    return guarded([&] { functions(run).prepare(run->n_threads, *preparation, *signals, *out); });
}

int32_t ts_scores(const ts_run* run, const ts_scoring* scoring, const ts_codes* codes, const ts_queries* queries,
                  float* out) {
    return guarded([&] { functions(run).scores(run->n_threads, *scoring, *codes, *queries, out); });
}

int32_t ts_rank(const ts_run* run, const ts_scoring* scoring, const ts_code_ranges* codes, const ts_queries* queries,
                const ts_best* best) {
    return guarded([&] { functions(run).rank(run->n_threads, *scoring, *codes, *queries, *best); });
}

int32_t ts_within(const ts_run* run, const ts_scoring* scoring, const ts_code_ranges* codes, const ts_queries* queries,
                  const ts_found* found) {
    return guarded([&] { functions(run).within(run->n_threads, *scoring, *codes, *queries, *found); });
}

int32_t ts_encode_sets(const ts_run* run, const ts_sets* sets, const int32_t* locations, uint8_t* out,
                       int64_t* lengths) {
    return guarded([&] { encode_sets(run->n_threads, *sets, locations, out, lengths); });
}

int32_t ts_decode_sets(const ts_run* run, const ts_sets* sets, const uint8_t* bytes, int32_t* locations) {
    return guarded([&] { decode_sets(run->n_threads, *sets, bytes, locations); });
}

int32_t ts_byte_products(const ts_run* run, const ts_bytes* bytes, int32_t* out) {
    return guarded([&] { functions(run).byte_products(run->n_threads, *bytes, out); });
}

int32_t ts_choose_regions(const ts_run* run, const ts_regions* regions, const ts_region_rule* rule,
                          const ts_rows* units, const ts_region_choice* choice) {
    return guarded([&] { functions(run).choose_regions(run->n_threads, *regions, *rule, *units, *choice); });
}

int32_t ts_visit(const ts_run* run, const ts_scoring* scoring, const ts_region_codes* codes, const ts_visits* visits,
                 const ts_queries* queries, const ts_best* best) {
    return guarded([&] { functions(run).visit(run->n_threads, *scoring, *codes, *visits, *queries, *best); });
}

int32_t ts_search_regions(const ts_run* run, const ts_scoring* scoring, const ts_region_codes* codes,
                          const ts_regions* regions, const ts_region_rule* rule, const ts_rows* units,
                          const ts_queries* queries, const ts_originals* originals, const ts_neighbors* found) {
    bool is_complete = true;
    const int32_t status = guarded([&] {
        is_complete = functions(run).search_regions(run->n_threads, *scoring, *codes, *regions, *rule, *units, *queries,
                                                    originals, *found);
    });
    return status || is_complete ? status : kMustRead;
}

int32_t ts_search_plan(const ts_run* run, const ts_region_plan* plan, const ts_rows* signals,
                       const ts_neighbors* found) {
    bool is_complete = true;
    const int32_t status =
        guarded([&] { is_complete = functions(run).search_plan(run->n_threads, *plan, *signals, *found); });
    if (status) return status;
    if (!is_complete) return kMustRead;
    for (int64_t q = 0; q < signals->count; ++q)
        if (found->rows[(q + 1) * found->k - 1] < 0) return 2;
    return 0;
}

int32_t ts_compare_originals(const ts_run* run, const ts_code_ranges* codes, const ts_originals* originals,
                             const int64_t* starts, const int64_t* rows, double* inner, double* correlations) {
    return guarded([&] {
        functions(run).compare_originals(run->n_threads, *codes, *originals, starts, rows, inner, correlations);
    });
}
