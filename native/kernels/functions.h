// The table of functions of an instruction set: every kernel, compiled for it.
#pragma once

#include "../isa/functions.h"
#include "hamming.h"
#include "lane_sums.h"
#include "pack_bits.h"
#include "scores.h"
#include "select.h"
#include "sums.h"
#include "transform.h"
#include "trellis_encode.h"
#include "trellis_scan.h"

namespace topsign {
namespace {

template <class Isa>
constexpr Functions functions_of(const char* name, bool (*runs_here)()) {
    return {name,
            runs_here,
            rotate<Isa>,
            square_norms<Isa>,
            magnitude_sums<Isa>,
            select_rows<Isa>,
            pack_bits<Isa>,
            mismatches<Isa>,
            score_sums<Isa>,
            search_mismatches<Isa>,
            within_mismatches<Isa>,
            search_scores<Isa>,
            within_scores<Isa>,
            trellis_encode<Isa>,
            trellis_decode<Isa>,
            trellis_weights<Isa>,
            trellis_sums<Isa>,
            trellis_search<Isa>,
            trellis_within<Isa>};
}

}  // namespace
}  // namespace topsign
