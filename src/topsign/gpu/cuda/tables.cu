// Sums of a few queries: each byte of a code looks up its part of the sum in tables in shared memory.
//
// QUERIES (compared with a code while it is read), TABLE_BYTES (per query) and THREADS are compile-time constants.
// Signs and groups have a table of 16 entries per nibble, ordered [four planes][low or high nibble][plane][entry]: the
// lanes of a warp read four planes at a time, whose tables of 16 bits lie in different banks. Rings have a table of 256
// entries per step. Kept codes have the values of the queries themselves, [location][query].

#if KIND == RING
typedef int Entry;
#else
typedef short Entry;
#endif
#define UNITS ((DATA_BYTES + 3) / 4)  // of four planes

// Writes the tables of a query (y). `books`, of rings: level (window, coordinate) of step s is at places[s].x + window *
// dims + coordinate, with dims = places[s].z; its coordinates begin with places[s].y.
extern "C" __global__ void make_tables(const short* queries, const uint4* places, const signed char* books, u8* tables) {
    const u32 query = blockIdx.y;
    const short* values = queries + u64(query) * WIDTH;
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    Entry* out = reinterpret_cast<Entry*>(tables + u64(query) * TABLE_BYTES);
#if KIND == SIGNS || KIND == GROUPS
    const u32 plane = i / 128 * 4 + i / 16 % 4, nibble = 2 * plane + i / 64 % 2, bits = i % 16;
    if (i >= UNITS * 128) return;
    int sum = 0;
    if (plane < DATA_BYTES && KIND == GROUPS) sum = bits & 8 ? values[8 * nibble + (bits & 7)] : -values[8 * nibble + (bits & 7)];
    if (plane < DATA_BYTES && KIND == SIGNS)
        for (u32 j = 0; j < 4; ++j) sum += bits >> j & 1 ? values[4 * nibble + j] : -values[4 * nibble + j];
    out[i] = Entry(sum);
#elif KIND == RING
    const u32 step = i / 256, window = i % 256;
    if (step >= 2 * DATA_BYTES) return;
    const uint4 place = places[step];
    const signed char* levels = books + place.x + window * place.z;
    int sum = 0;
    for (u32 c = 0; c < place.z; ++c) sum += values[place.y + c] * levels[c];
    out[i] = sum;
#else
    Entry* together = reinterpret_cast<Entry*>(tables + u64(query / QUERIES * QUERIES) * TABLE_BYTES);
    if (i < WIDTH) together[i * QUERIES + query % QUERIES] = values[i];
#endif
}

// One warp per block of 32 codes at a time; queries from `first` on.
extern "C" __global__ void __launch_bounds__(THREADS) scan_tables(const u8* tables, u32 first, TARGET_PARAMETERS) {
    const Target to = TARGET;
    const uint4* from = reinterpret_cast<const uint4*>(tables + u64(first) * TABLE_BYTES);
    for (u32 i = threadIdx.x; i < QUERIES * TABLE_BYTES / 16; i += THREADS) reinterpret_cast<uint4*>(dynamic_shared)[i] = from[i];
    __syncthreads();
    const u32 lane = threadIdx.x % 32, n_warps = gridDim.x * (THREADS / 32);
    for (u32 block = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; block < (n_codes + 31) / 32; block += n_warps) {
        int sums[QUERIES];
#if KIND == SIGNS || KIND == GROUPS
        // A lane reads four codes of every fourth plane. The 256 bytes of the tables of four planes are aligned, so the last
        // byte of an address has the nibble, the plane and which nibble it is.
        const u32* words = reinterpret_cast<const u32*>(code_at(planes, u64(block) * 32)) + lane;
        const u32 plane = lane / 8 * 32 * 0x01010101u;
        int four[QUERIES][4] = {};
#pragma unroll 4
        for (u32 unit = 0; unit < UNITS; ++unit) {
            const u32 word = DATA_BYTES % 4 == 0 || unit * 4 + lane / 8 < DATA_BYTES ? __ldg(words + unit * 32) : 0;
            const u32 low = (word << 1 & 0x1e1e1e1eu) | plane, high = (word >> 3 & 0x1e1e1e1eu) | plane | 0x80808080u;
#pragma unroll
            for (u32 c = 0; c < 4; ++c) {
                const u8* lows = dynamic_shared + __byte_perm(low, unit * 256, 0x7650 + c);
                const u8* highs = dynamic_shared + __byte_perm(high, unit * 256, 0x7650 + c);
#pragma unroll
                for (u32 q = 0; q < QUERIES; ++q)
                    four[q][c] += *reinterpret_cast<const Entry*>(lows + q * TABLE_BYTES) + *reinterpret_cast<const Entry*>(highs + q * TABLE_BYTES);
            }
        }
        // Four lanes have parts of the same four sums; each lane gets one of the sums.
        const bool second = lane & 16, odd = lane & 8;
        const u32 code = block * 32 + lane % 8 * 4 + second * 2 + odd;
#pragma unroll
        for (u32 q = 0; q < QUERIES; ++q) {
            const int even = (second ? four[q][2] : four[q][0]) + __shfl_xor_sync(ALL, second ? four[q][0] : four[q][2], 16);
            const int uneven = (second ? four[q][3] : four[q][1]) + __shfl_xor_sync(ALL, second ? four[q][1] : four[q][3], 16);
            sums[q] = (odd ? uneven : even) + __shfl_xor_sync(ALL, odd ? even : uneven, 8);
        }
#else
        const u32 code = block * 32 + lane;
        const u8* bytes = code_at(planes, code);
        const Entry* entries = reinterpret_cast<const Entry*>(dynamic_shared);
#pragma unroll
        for (u32 q = 0; q < QUERIES; ++q) sums[q] = 0;
#if KIND == RING
        u32 before = bytes[(DATA_BYTES - 1) * 32];
#pragma unroll 4
        for (u32 b = 0; b < DATA_BYTES; ++b) {
            const u32 byte = bytes[b * 32], window = (before & 15) << 4 | byte >> 4;
#pragma unroll
            for (u32 q = 0; q < QUERIES; ++q)
                sums[q] += entries[q * (TABLE_BYTES / 4) + b * 512 + window] + entries[q * (TABLE_BYTES / 4) + b * 512 + 256 + byte];
            before = byte;
        }
#else
        for_each_kept(bytes, [&](u32 location, u32 positive) {
#pragma unroll
            for (u32 q = 0; q < QUERIES; ++q) {
                const int value = entries[location * QUERIES + q];
                sums[q] += positive ? value : -value;
            }
        });
#endif
#endif
        if (code >= n_codes) continue;
        const float factor = to.factor(code);
#pragma unroll
        for (u32 q = 0; q < QUERIES; ++q)
            if (first + q < n_queries) to.report(first + q, code, sums[q], factor);
    }
}
