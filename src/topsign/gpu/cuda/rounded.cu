// Rounded queries of trellis codes, in the layout of the scans. Starts a search: resets counts, best entries and bars.

// One block per query. `width` > 0: words of four values, [four][query of width]; 0: columns of the product, with the
// digits of eight queries one after the other. The bar of a query that is not finite is infinite, so it has no
// candidates. `fine`, unless null, has second digits, which `width` includes.
extern "C" __global__ void place_queries(const u8* values, const float* scales, const float* constants, const u8* fine, u32 n_values,
                                         u32 width, u8* out,
                                         float* steps, float* margins, float* bars, u32* counts, u64* held_keys,
                                         u32* held_positions, u32 n_held) {
    const u32 query = blockIdx.x, padded = (n_values + 127) / 128 * 128, digits = fine ? 2 : 1;
    for (u32 digit = 0; digit < digits; ++digit) {
        const u8* mine = (digit ? fine : values) + u64(query) * n_values;
        const u32 column = (query / 8 * digits + digit) * 8 + query % 8;
        for (u32 i = threadIdx.x; i < n_values; i += blockDim.x)
            out[width ? u64(i / 4 * width + query * digits + digit) * 4 + i % 4 : u64(column) * padded + i] = mine[i];
    }
    for (u32 i = threadIdx.x; i < n_held; i += blockDim.x) {
        held_keys[u64(query) * n_held + i] = 0;
        held_positions[u64(query) * n_held + i] = ALL;
    }
    if (threadIdx.x == 0) {
        steps[query] = scales[query];
        steps[gridDim.x + query] = constants[query];
        margins[query] = 0;
        bars[query] = isfinite(scales[query]) && isfinite(constants[query]) ? NOTHING : INFINITE;
        counts[query] = 0;
    }
}
