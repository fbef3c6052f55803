// Sums of a few queries with one code per thread; each coordinate's window is read and looked up.

#define SUM_PARAMETERS const uint2 *coordinates, const u8 *levels, const int *queries
#define SUMMER Summer(coordinates, levels, queries)

struct Summer {
    Tables tables;
    const int* values;  // [four coordinates][query]

    __device__ __forceinline__ Summer(const uint2* coordinates, const u8* levels, const int* queries)
        : tables(coordinates, levels, dynamic_shared) {
        int* mine = reinterpret_cast<int*>(dynamic_shared + 8 * CODED + 128);
        for (u32 i = threadIdx.x; i < CODED / 4 * QUERIES; i += blockDim.x) mine[i] = queries[i];
        __syncthreads();
        values = mine;
    }
    // Calls use(code, query, sums) with the sums of the digits of each query.
    template <class Use>
    __device__ __forceinline__ void for_each_sum(const u32* stripes, u32 n_codes, const Use& use) const {
        for (u32 code = blockIdx.x * blockDim.x + threadIdx.x; code < n_codes; code += gridDim.x * blockDim.x) {
            int sums[QUERIES];
#pragma unroll
            for (u32 q = 0; q < QUERIES; ++q) sums[q] = 0;
            for_each_four(code_at(stripes, code), tables.coordinates, tables.levels, 0, CODED, [&](u32 four, u32 found) {
#pragma unroll
                for (u32 q = 0; q < QUERIES; ++q) sums[q] = __dp4a(int(found), values[four * QUERIES + q], sums[q]);
            });
#pragma unroll
            for (u32 q = 0; q < QUERIES / FEW_DIGITS; ++q) use(code, q, sums + q * FEW_DIGITS);
        }
    }
};
