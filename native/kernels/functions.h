// Function table of an instruction set, filled with the kernels compiled for it.
#pragma once

#include "../isa/functions.h"
#include "byte_products.h"
#include "code_visits.h"
#include "hamming.h"
#include "lane_sums.h"
#include "pack_bits.h"
#include "products.h"
#include "region_choice.h"
#include "scores.h"
#include "select.h"
#include "sums.h"
#include "transform.h"
#include "trellis_encode.h"
#include "trellis_rounding.h"
#include "trellis_scan.h"
#include "trellis_visits.h"

namespace topsign {
namespace {

// `Trellis` provides the operations of the trellis kernels, if they are in a class of their own.
template <class Isa, class Trellis = Isa>
constexpr Functions functions_of(const char* name, bool (*runs_here)()) {
    return {name,
            runs_here,
            rotate<Isa>,
            multiply<Isa>,
            square_norms<Isa>,
            magnitude_sums<Isa>,
            inner_products<Isa>,
            select_rows<Isa>,
            pack_bits<Isa>,
            mismatches<Isa>,
            score_sums<Isa>,
            rank_mismatches<Isa>,
            within_mismatches<Isa>,
            rank_scores<Isa>,
            within_scores<Isa>,
            visit_mismatches<Isa>,
            visit_scores<Isa>,
            trellis_round<Trellis>,
            trellis_encode<Trellis>,
            trellis_decode<Trellis>,
            trellis_weights<Trellis>,
            trellis_sums<Trellis>,
            rank_trellis<Trellis>,
            within_trellis<Trellis>,
            visit_trellis<Trellis>,
            byte_products<Trellis>,
            choose_regions<Trellis>};
}

}  // namespace
}  // namespace topsign
