// Initialises the bar of each query (y) to a score that at least k of the first n codes reach. Blocks in x share a query.
extern "C" __global__ void set_bars(const u32* stripes, const float* queries, const float* weights, const float* biases,
                                    const u32* alive, u32 n, u32 k, u32 capacity, float* scores, u32* done, float* bars) {
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + threadIdx.x / 32 * SCRATCH;
    const u32 query = blockIdx.y, n_warps = blockDim.x / 32;
    volatile float* mine = scores + u64(query) * capacity;
    if (bars[query] == INFINITE) return;
    for (u32 code = blockIdx.x * n_warps + threadIdx.x / 32; code < n; code += gridDim.x * n_warps) {
        const float score = exact_score(code_at(stripes, code), queries + u64(query) * N_POOL, scratch, weights, code);
        const bool dead = alive && !get_bit(alive, code);
        if (threadIdx.x % 32 == 0) mine[code] = dead ? NOTHING : biases ? __fadd_rd(score, biases[code]) : score;
    }
    if (!is_last(done, query)) return;
    float* cache = reinterpret_cast<float*>(dynamic_shared);
    const float least = reached_by([&](u32 i) { return mine[i]; }, n, k, cache, blockDim.x / 32 * SCRATCH);
    if (threadIdx.x == 0) bars[query] = next_below(least);
}
