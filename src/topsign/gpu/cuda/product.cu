// Scores of a batch of queries; `multiply_tiles` computes the sums of a tile with tensor cores.

#ifdef COLUMNS
#define QUERIES (COLUMNS / DIGITS)
#define STRIDE (QUERIES + 8)  // floats per row of centers; rows begin in different banks

// Converts sums to centers in shared memory, (TILE, STRIDE), which replace the tiles. Digits of a query are in
// neighbouring groups of 8 columns. Loops over shared memory are shorter code than unrolled accesses to registers.
__device__ __forceinline__ float* write_centers(const Sums& sums, const float* steps, u32 first_query, u32 n_queries) {
    float* centers = reinterpret_cast<float*>(dynamic_shared + ROW_BYTES);
    float* step = centers + TILE * STRIDE;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 row0 = warp % WARPS_DOWN * ROWS_16 * 16 + lane / 4;
    const u32 query0 = warp / WARPS_DOWN * (COLUMNS_8 / DIGITS) * 8 + lane % 4 * 2;
    __syncthreads();
    for (u32 i = threadIdx.x; i < QUERIES; i += 256) {
        const bool there = first_query + i < n_queries;
        step[i] = there ? steps[first_query + i] : 0.f;
        if (TRELLIS) step[QUERIES + i] = there ? steps[n_queries + first_query + i] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < COLUMNS_8 / DIGITS; ++n) {
        const u32 query = query0 + n * 8;
        const float2 own = *reinterpret_cast<const float2*>(step + query);
        const float2 constant = *reinterpret_cast<const float2*>(step + (TRELLIS ? QUERIES : 0) + query);
#pragma unroll
        for (int row = 0; row < ROWS_16 * 2; ++row) {
            int left[DIGITS], right[DIGITS];
#pragma unroll
            for (int d = 0; d < DIGITS; ++d) {
                left[d] = sums.sum[row / 2][n * DIGITS + d][row % 2 * 2];
                right[d] = sums.sum[row / 2][n * DIGITS + d][row % 2 * 2 + 1];
            }
            *reinterpret_cast<float2*>(centers + (row0 + row * 8) * STRIDE + query) =
                make_float2(center_of(left, own.x, constant.x), center_of(right, own.y, constant.y));
        }
    }
    __syncthreads();
    return centers;
}

// A block has one tile of codes and every `across`-th tile of columns.
extern "C" __global__ void __launch_bounds__(256) product(ROW_PARAMETERS, const u8* columns, u32 column_tiles, u32 across,
                                                          CANDIDATE_PARAMETERS) {
    const Candidates to = CANDIDATES;
    const u32 tile = blockIdx.x / across, first_code = tile * TILE, count = min(n_codes - first_code, u32(TILE));
    float* weight = reinterpret_cast<float*>(dynamic_shared + ROW_BYTES) + TILE * STRIDE;  // after the steps
    float* bias = weight + TILE;
    for (u32 column = blockIdx.x % across; column < column_tiles; column += across) {
        const u32 first_query = column * COLUMNS / DIGITS;
        Sums sums;
        multiply_tiles(sums, ROWS, n_codes, columns, tile, column * COLUMNS, column >= across);
        const float* middles = write_centers(sums, steps, first_query, n_queries);
        if (threadIdx.x < TILE) {
            const u32 code = first_code + threadIdx.x;
            weight[threadIdx.x] = weights && code < n_codes ? weights[code] : 1.f;
            bias[threadIdx.x] = biases && code < n_codes ? biases[code] : 0.f;
        }
        __syncthreads();
        if (every) {  // neighbouring threads write neighbouring codes
            const u32 row = threadIdx.x % TILE;
            for (u32 i = threadIdx.x / TILE; i < QUERIES && first_query + i < n_queries; i += 256 / TILE)
                if (row < count) keep(to, first_query + i, first_code + row, middles[row * STRIDE + i]);
        } else {
            for (u32 i = threadIdx.x; i < QUERIES * (256 / QUERIES > 0 ? 256 / QUERIES : 1); i += 256) {
                const u32 query = first_query + i % QUERIES;  // threads of a query take rows in turn
                if (query >= n_queries) continue;
                const float margin = margins[query], bar = bars[query];
#pragma unroll 4
                for (u32 row = i / QUERIES; row < count; row += 256 / QUERIES > 0 ? 256 / QUERIES : 1) {
                    const float center = middles[row * STRIDE + i % QUERIES];
                    if (upper(center, margin, weight[row], bias[row]) > bar) keep(to, query, first_code + row, center);
                }
            }
        }
        __syncthreads();  // the next columns reuse this memory
    }
}

// Writes all scores, (n_queries, n_all).
extern "C" __global__ void __launch_bounds__(256) product_all(ROW_PARAMETERS, const u8* columns, u32 column_tiles, u32 across,
                                                              const float* steps, const float* weights,
                                                              const float* biases, u32 n_codes, u32 n_queries,
                                                              u64 n_all, float* out) {
    const u32 tile = blockIdx.x / across, row = threadIdx.x % TILE, code = tile * TILE + row;
    for (u32 column = blockIdx.x % across; column < column_tiles; column += across) {
        const u32 first_query = column * COLUMNS / DIGITS;
        Sums sums;
        multiply_tiles(sums, ROWS, n_codes, columns, tile, column * COLUMNS, column >= across);
        const float* middles = write_centers(sums, steps, first_query, n_queries);
        const float weight = weights && code < n_codes ? weights[code] : 1.f, bias = biases && code < n_codes ? biases[code] : 0.f;
        for (u32 i = threadIdx.x / TILE; i < QUERIES && first_query + i < n_queries; i += 256 / TILE)
            if (code < n_codes) out[u64(first_query + i) * n_all + code] = middles[row * STRIDE + i] * weight + bias;
        __syncthreads();
    }
}
#endif
