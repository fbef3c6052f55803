// Packing and unpacking of adaptive codes; shared by all paths.
#pragma once

#include "layout.h"

namespace topsign {

void pack_codes(int n_threads, const Layout& layout, int64_t n_codes, const ts_contents& contents, uint8_t* out);
void unpack_codes(int n_threads, const ts_codes& codes, const ts_contents& out);
void valid_codes(int n_threads, const ts_codes& codes, uint8_t* valid);

}  // namespace topsign
