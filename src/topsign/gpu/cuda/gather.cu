// Scores of a few queries: one thread per code looks up the query values at its locations.
//
// With WIDTH 1, the table has one integer per row of the pool. Otherwise it has WIDTH bytes per row: one digit of each
// query plus 128. Four bytes are added as two words of two 16-bit fields. A negative sign inverts the byte, which gives
// the negated digit plus 127, so the sum of digits is the sum of bytes, minus 128 per location, plus one per negative sign.

#if WIDTH == 1
#define ROW_BYTES 4
__device__ __forceinline__ void sum_columns(const u32* code, const u8* table, int* sums) {
    u32 sum = 0, positives = 0;
    for_each_kept(code, [&](u32 location, u32 negative, u32) {
        sum += reinterpret_cast<const u32*>(table)[location] ^ negative;  // ~x is -x - 1
    });
    for (u32 w = 0; w < SIGN_WORDS; ++w) positives += __popc(code[w * GROUP]);  // bits past N_BITS are zero
    sums[0] = int(sum + N_BITS - positives);
}
#else

#define ROW_BYTES WIDTH
#define WORDS (WIDTH / 4)
#define FIELDS 0x00ff00ffu

struct Words {
    u32 word[WORDS];
};

__device__ __forceinline__ Words table_row(const u8* table, u32 row) {
    Words out;
    const u32* words = reinterpret_cast<const u32*>(table + row * WIDTH);
#if WIDTH == 16
    const uint4 four = *reinterpret_cast<const uint4*>(words);
    out.word[0] = four.x, out.word[1] = four.y, out.word[2] = four.z, out.word[3] = four.w;
#elif WIDTH == 8
    const uint2 two = *reinterpret_cast<const uint2*>(words);
    out.word[0] = two.x, out.word[1] = two.y;
#else
    out.word[0] = words[0];
#endif
    return out;
}

// Computes the integer sums of all columns for one code.
__device__ __forceinline__ void sum_columns(const u32* code, const u8* table, int* sums) {
    u32 even[WORDS] = {}, odd[WORDS] = {}, positives = 0;
    for (int c = 0; c < WIDTH; ++c) sums[c] = 0;
    const auto flush = [&] {
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            sums[4 * w] += even[w] & 0xffff, sums[4 * w + 2] += even[w] >> 16;
            sums[4 * w + 1] += odd[w] & 0xffff, sums[4 * w + 3] += odd[w] >> 16;
            even[w] = odd[w] = 0;
        }
    };
    for_each_kept(code, [&](u32 location, u32 negative, u32 rank) {
        const Words row = table_row(table, location);
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            even[w] += (row.word[w] ^ negative) & FIELDS;
            odd[w] += (row.word[w] >> 8 ^ negative) & FIELDS;
        }
        if (N_BITS > 256 && rank % 256 == 255) flush();  // sums of 256 bytes fit in 16 bits
    });
    flush();
    for (u32 w = 0; w < SIGN_WORDS; ++w) positives += __popc(code[w * GROUP]);  // bits past N_BITS are zero
    const int correction = int(N_BITS - positives) - 128 * int(N_BITS);
    for (int c = 0; c < WIDTH; ++c) sums[c] += correction;
}

#endif

__device__ __forceinline__ const u8* shared_table(const u8* table) {
#if TABLE_SHARED
    uint4* shared = reinterpret_cast<uint4*>(dynamic_shared);
    for (u32 i = threadIdx.x; i < (N_POOL * ROW_BYTES + 15) / 16; i += blockDim.x)
        shared[i] = reinterpret_cast<const uint4*>(table)[i];
    __syncthreads();
    return reinterpret_cast<const u8*>(shared);
#else
    return table;
#endif
}

extern "C" __global__ void __launch_bounds__(GATHER_THREADS) gather(const u32* stripes, const u8* table, CANDIDATE_PARAMETERS) {
    const Candidates to = CANDIDATES;
    const u8* values = shared_table(table);
    for (u32 code = blockIdx.x * blockDim.x + threadIdx.x; code < n_codes; code += gridDim.x * blockDim.x) {
        int sums[WIDTH];
        sum_columns(code_at(stripes, code), values, sums);
        const float weight = weights ? weights[code] : 1.f, bias = biases ? biases[code] : 0.f;
#pragma unroll
        for (u32 q = 0; q < WIDTH / DIGITS; ++q)
            if (q < n_queries) offer(to, q, code, center_of(sums + q * DIGITS, steps[q]), weight, bias);
    }
}

// Writes all scores, (n_queries, n_all), from column `first` on.
extern "C" __global__ void __launch_bounds__(GATHER_THREADS) gather_all(const u32* stripes, const u8* table, const float* steps,
                                                    const float* weights, const float* biases, u32 n_codes,
                                                    u32 n_queries, u64 n_all, float* out) {
    const u8* values = shared_table(table);
    for (u32 code = blockIdx.x * blockDim.x + threadIdx.x; code < n_codes; code += gridDim.x * blockDim.x) {
        int sums[WIDTH];
        sum_columns(code_at(stripes, code), values, sums);
        const float weight = weights ? weights[code] : 1.f, bias = biases ? biases[code] : 0.f;
#pragma unroll
        for (u32 q = 0; q < WIDTH / DIGITS; ++q)
            if (q < n_queries) out[q * n_all + code] = center_of(sums + q * DIGITS, steps[q]) * weight + bias;
    }
}
