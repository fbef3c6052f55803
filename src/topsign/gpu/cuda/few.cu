// Scores of a few queries with trellis codes: one thread per code reads its levels, four at a time, and multiplies them
// with the queries. QUERIES and FEW_THREADS are constants of the compilation. A query of two digits is two of QUERIES.

#define FEW_DIGITS (FINE_BITS ? 2 : 1)

struct Few {
    Tables tables;
    const int* values;  // [four coordinates][query]

    __device__ __forceinline__ Few(const uint2* coordinates, const u8* levels, const int* queries)
        : tables(coordinates, levels, dynamic_shared) {
        int* mine = reinterpret_cast<int*>(dynamic_shared + 8 * CODED + 128);
        for (u32 i = threadIdx.x; i < CODED / 4 * QUERIES; i += blockDim.x) mine[i] = queries[i];
        __syncthreads();
        values = mine;
    }
    __device__ __forceinline__ void sum(const u32* code, int (&sums)[QUERIES]) const {
#pragma unroll
        for (u32 q = 0; q < QUERIES; ++q) sums[q] = 0;
        for_each_four(code, tables.coordinates, tables.levels, 0, CODED, [&](u32 four, u32 found) {
#pragma unroll
            for (u32 q = 0; q < QUERIES; ++q) sums[q] = __dp4a(int(found), values[four * QUERIES + q], sums[q]);
        });
    }
};

extern "C" __global__ void __launch_bounds__(FEW_THREADS) few(const u32* stripes, const uint2* coordinates, const u8* levels,
                                                              const int* queries, CANDIDATE_PARAMETERS) {
    const Candidates to = CANDIDATES;
    const Few scan(coordinates, levels, queries);
    for (u32 code = blockIdx.x * blockDim.x + threadIdx.x; code < n_codes; code += gridDim.x * blockDim.x) {
        int sums[QUERIES];
        scan.sum(code_at(stripes, code), sums);
        const float weight = weights[code], bias = biases ? biases[code] : 0.f;
#pragma unroll
        for (u32 q = 0; q < QUERIES / FEW_DIGITS; ++q)
            if (q < n_queries)
                offer(to, q, code, center_of(sums + q * FEW_DIGITS, steps[q], steps[n_queries + q]), weight, bias);
    }
}

// All scores: (n_queries, n_all).
extern "C" __global__ void __launch_bounds__(FEW_THREADS) few_all(const u32* stripes, const uint2* coordinates, const u8* levels,
                                                                  const int* queries, const float* steps,
                                                                  const float* weights, const float* biases, u32 n_codes,
                                                                  u32 n_queries, u64 n_all, float* out) {
    const Few scan(coordinates, levels, queries);
    for (u32 code = blockIdx.x * blockDim.x + threadIdx.x; code < n_codes; code += gridDim.x * blockDim.x) {
        int sums[QUERIES];
        scan.sum(code_at(stripes, code), sums);
        const float weight = weights[code], bias = biases ? biases[code] : 0.f;
#pragma unroll
        for (u32 q = 0; q < QUERIES / FEW_DIGITS; ++q)
            if (q < n_queries)
                out[q * n_all + code] =
                    center_of(sums + q * FEW_DIGITS, steps[q], steps[n_queries + q]) * weight + bias;
    }
}
