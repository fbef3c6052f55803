// Sums and counts of one code against one query, in the one order that every path shares.
#pragma once

#include "layout.h"

namespace topsign {

// Sum of a query's values at the kept rows, each with the code's sign.
float sum_kept(int path, const uint32_t* kept, int64_t n, const float* query);

// Sum of all of a query's values, each with the sign of the code's bit.
float sum_signs(int path, const uint8_t* signs, int64_t n, const float* query);

// Differing bits, under a mask unless it is null.
int32_t count_differing(const uint8_t* a, const uint8_t* b, const uint8_t* mask, int64_t bytes);

}  // namespace topsign
