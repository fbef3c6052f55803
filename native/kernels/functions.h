// Function table of an instruction set, filled with the kernels compiled for it.
#pragma once

#include "../isa/functions.h"
#include "byte_products.h"
#include "groups.h"
#include "lane_sums.h"
#include "pack_bits.h"
#include "prepare.h"
#include "products.h"
#include "region_search.h"
#include "rounding.h"
#include "select.h"
#include "transform.h"

namespace topsign {
namespace {

template <class Isa>
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
            encode_groups<Isa>,
            ring_encode<Isa>,
            round_rows<Isa>,
            prepare_queries<Isa>,
            scores<Isa>,
            rank<Isa>,
            within<Isa>,
            byte_products<Isa>,
            choose_regions<Isa>,
            visit<Isa>,
            search_regions<Isa>,
            search_plan<Isa>,
            compare_originals<Isa>};
}

}  // namespace
}  // namespace topsign
