// Entropy coding of sets of locations; shared by all paths.
#pragma once

#include "../topsign.h"

namespace topsign {

void encode_sets(int n_threads, const ts_sets& sets, const int32_t* locations, uint8_t* out, int64_t* lengths);
void decode_sets(int n_threads, const ts_sets& sets, const uint8_t* bytes, int32_t* locations);

}  // namespace topsign
