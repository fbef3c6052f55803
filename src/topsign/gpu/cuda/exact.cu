// Exact scores: sums of a query's values at the locations of a code, in the order that all kernels share.

#define STAGED (N_BITS < 1024 ? N_BITS : 1024)  // locations of 32 words of the unary part, at most
#define STAGED_CODE (CODE_WORDS <= 2048 ? CODE_WORDS : 0)
#define FLYING (N_BITS >= 512 ? 16 : 4)  // loads of query values in flight per lane
#define SCRATCH (STAGED_CODE + STAGED)  // words of shared memory per warp

// Returns in lane 0 the sum of a query's values at the locations of a code, times the signs, in double precision: term i
// in lane i mod 16, lanes folded in half. Called by a warp, with its own `scratch`.
__device__ __forceinline__ float exact_sum(const u32* code, const float* query, u32* scratch) {
    const u32 lane = threadIdx.x % 32;
    double sum = 0;
    __syncwarp();
#pragma unroll 4
    for (u32 j = lane; j < STAGED_CODE; j += 32) scratch[j] = code[j * GROUP];
    __syncwarp();
    const auto word_of = [&](u32 j) { return STAGED_CODE ? scratch[j] : code[j * GROUP]; };
#if SIGNS
    if (lane < 16)
#pragma unroll 4
        for (u32 i = lane; i < N_POOL; i += 16) {
            const float value = __ldg(query + i);
            sum += word_of(i / 32) >> i % 32 & 1 ? value : -value;
        }
#else
    u32* staged = scratch + STAGED_CODE;
    float* values = reinterpret_cast<float*>(staged);
    u32 done = 0;  // locations summed
    for (u32 first = 0; first < HIGH_WORDS; first += 32) {
        u32 word = first + lane < HIGH_WORDS ? word_of(SIGN_WORDS + LOW_WORDS + first + lane) : 0;
        u32 through = __popc(word);
        for (u32 d = 1; d < 32; d <<= 1) {
            const u32 other = __shfl_up_sync(ALL, through, d);
            if (lane >= d) through += other;
        }
        const u32 count = min(__shfl_sync(ALL, through, 31), u32(N_BITS) - done);
        for (u32 rank = through - __popc(word); word && rank < count; ++rank) {
            const u32 zeros = __clz(word), i = done + rank, at = i * LOW_BITS;
            word &= ~(0x80000000u >> zeros);
            u32 low = 0;
            if (LOW_BITS > 0) {
                const u32 near = word_of(SIGN_WORDS + at / 32);
                const u32 far = at % 32 + LOW_BITS > 32 ? word_of(SIGN_WORDS + at / 32 + 1) : 0;
                low = __funnelshift_r(near, far, at % 32) & LOW_MASK;
            }
            staged[rank] = location_of((first + lane) * 32 + zeros, i, low) << 1 | (word_of(i / 32) >> i % 32 & 1);
        }
        __syncwarp();
        for (u32 start = lane; start < count; start += 32 * FLYING) {
            u32 entry[FLYING];
            float value[FLYING];
#pragma unroll
            for (u32 u = 0; u < FLYING; ++u) entry[u] = start + u * 32 < count ? staged[start + u * 32] : 0;
#pragma unroll
            for (u32 u = 0; u < FLYING; ++u) value[u] = __ldg(query + (entry[u] >> 1));
#pragma unroll
            for (u32 u = 0; u < FLYING; ++u)
                if (start + u * 32 < count) values[start + u * 32] = entry[u] & 1 ? value[u] : -value[u];
        }
        __syncwarp();
        if (lane < 16)
#pragma unroll 4
            for (u32 rank = (lane + 16 - done % 16) % 16; rank < count; rank += 16) sum += values[rank];
        __syncwarp();
        done += count;
    }
#endif
    for (int half = 8; half > 0; half /= 2) sum += __shfl_down_sync(ALL, sum, half);
    return float(sum);
}

// Without the bias.
__device__ __forceinline__ float exact_score(const u32* code, const float* query, u32* scratch, const float* weights, u32 at) {
    const float sum = exact_sum(code, query, scratch);
    return weights ? sum * weights[at] : sum;
}
