// Codes on a device, and the values of a scan.
//
// Codes are blocks of 32 in byte planes, (n_blocks, CODE_BYTES, 32): byte b of a code is 32 bytes after byte b - 1. The
// first DATA_BYTES are the code; two factor bytes may follow. KIND (below), CODE_BYTES, DATA_BYTES and WIDTH (integers of
// a query) are compile-time constants; for KEPT also N_BITS, LOW_BITS, SIGN_BYTES, LOW_BYTES and HIGH_BYTES.

#define SIGNS 0   // eight signs per byte
#define GROUPS 1  // two groups of eight projections per byte: location and sign of the largest
#define RING 2    // windows of two nibbles of a ring, looked up in codebooks
#define KEPT 3    // signs, and locations in Elias-Fano form

__device__ __forceinline__ const u8* code_at(const u8* planes, u64 code) {
    return planes + code / 32 * (u64(CODE_BYTES) * 32) + code % 32;
}

// Parameters of a scan after the sum of a query and a code. The value of a code is (sum * scale + constant) * factor.
struct Target {
    const u8* planes;
    const float *scales, *constants, *bars;  // one per query
    const float* factors;                    // by the number in the two factor bytes; null: all are 1
    const float* biases;                     // one per code, added to values, or null
    const u32* alive;                        // bitmap of the codes that take part, or null
    u32 base;                                // position of the first code
    u32 n_codes, n_queries, capacity;
    u32* counts;     // of candidates, one per query
    u32* positions;  // of candidates, (n_queries, capacity)
    float* values;   // likewise, without biases
    float* all;      // unless null, gets the values of all codes with biases, (n_queries, n_all)
    u64 n_all;

    __device__ __forceinline__ float factor(u32 code) const {
        if (!factors) return 1.f;
        const u8* last = code_at(planes, code) + (CODE_BYTES - 2) * 32;
        return __ldg(factors + (last[0] | last[32] << 8));
    }
    // Writes the value of a code, or adds the code to the candidates if its value may exceed the bar of the query.
    __device__ __forceinline__ void report(u32 query, u32 code, int sum, float factor) const {
        const float line = __fadd_rn(__fmul_rn(float(sum), __ldg(scales + query)), __ldg(constants + query));
        const float value = __fmul_rn(line, factor);
        if (all) {
            all[query * n_all + code] = biases ? float(double(value) + double(biases[code])) : value;
            return;
        }
        const float most = biases ? __fadd_ru(value, biases[code]) : value;
        if (!(most > bars[query]) || (alive && !(alive[code / 32] >> code % 32 & 1))) return;
        const u32 slot = atomicAdd(&counts[query], 1u);
        if (slot < capacity) {
            positions[u64(query) * capacity + slot] = base + code;
            values[u64(query) * capacity + slot] = value;
        }
    }
};

#define TARGET_PARAMETERS                                                                                            \
    const u8 *planes, const float *scales, const float *constants, const float *bars, const float *factors,          \
        const float *biases, const u32 *alive, u32 base, u32 n_codes, u32 n_queries, u32 capacity, u32 *counts,      \
        u32 *positions, float *values, float *all, u64 n_all
#define TARGET                                                                                                       \
    Target { planes, scales, constants, bars, factors, biases, alive, base, n_codes, n_queries, capacity, counts,    \
             positions, values, all, n_all }

#if KIND == KEPT
// Calls use(location, positive) for each location in ascending order. All lanes of a warp are at the same rank, so they
// read signs and low parts together. Any bytes are safe.
template <class Use>
__device__ __forceinline__ void for_each_kept(const u8* code, const Use& use) {
    const u8 *lows = code + SIGN_BYTES * 32, *highs = lows + LOW_BYTES * 32;
    u32 signs = 0, low = 0, n_low = 0, bits = 0, n_read = 0;
    for (u32 rank = 0; rank < N_BITS; ++rank) {
        if (rank % 8 == 0) signs = code[rank / 8 * 32];
        for (; n_low < LOW_BITS; n_low += 8, lows += 32) low |= u32(*lows) << n_low;
        while (bits == 0 && n_read < HIGH_BYTES) bits = highs[n_read++ * 32];
        const u32 at = (n_read - 1) * 8 + __ffs(bits) - 1;
        const u32 location = LOW_BITS == 0 ? at : (at - rank) << LOW_BITS | (low & ((1u << LOW_BITS) - 1));
        use(bits ? min(location, WIDTH - 1u) : 0, bits ? signs >> rank % 8 & 1 : 1);
        bits &= bits - 1;
        low >>= LOW_BITS, n_low -= LOW_BITS;
    }
}
#endif
