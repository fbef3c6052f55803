// Rounded queries of trellis codes as the scans read them. Starts a search: counts, held entries and bars are emptied.

// One block per query. `width` > 0: words of four values, [four][query of width]; 0: columns of the product. The bar of a
// query that is not finite lets nothing pass. Where `fine` is not null, it has second digits, which stand beside the first:
// width counts both.
extern "C" __global__ void place_queries(const u8* values, const float* scales, const float* constants, const u8* fine, u32 n_values,
                                         u32 width, u8* out,
                                         float* steps, float* margins, float* bars, u32* counts, u64* held_keys,
                                         u32* held_positions, u32 n_held) {
    const u32 query = blockIdx.x, padded = (n_values + 127) / 128 * 128;
    const u8* mine = values + u64(query) * n_values;
    for (u32 i = threadIdx.x; i < n_values; i += blockDim.x) {
        const u32 column = fine ? 2 * query : query;
        out[width ? u64(i / 4 * width + column) * 4 + i % 4 : u64(query) * padded + i] = mine[i];
        if (fine) out[u64(i / 4 * width + column + 1) * 4 + i % 4] = fine[u64(query) * n_values + i];
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
