// Function table of an instruction set, filled with the kernels compiled for it.
#pragma once

#include "../isa/functions.h"
#include "byte_products.h"
#include "groups.h"
#include "lane_sums.h"
#include "pack_bits.h"
#include "products.h"
#include "region_choice.h"
#include "rounding.h"
#include "search.h"
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
            scores<Isa>,
            rank<Isa>,
            within<Isa>,
            visit<Isa>,
            byte_products<Isa>,
            choose_regions<Isa>};
}

}  // namespace
}  // namespace topsign
