// Codes of projections: signs, groups, or the largest of the pool. KIND, DATA_BYTES and WIDTH (projections of a signal) are
// compile-time constants; for KEPT also N_BITS, LOW_BITS, SIGN_BYTES and LOW_BYTES.

extern "C" __global__ void square_norms(const float* signals, u32 n_signals, u32 n_features, double* out) {
    const u32 signal = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (signal >= n_signals) return;
    const float* x = signals + u64(signal) * n_features;
    const double sum = lane_sum(n_features, [&](u32 i) { return double(x[i]) * double(x[i]); });
    if (threadIdx.x % 32 == 0) out[signal] = sum;
}

#if KIND == KEPT
#define HISTOGRAM 256

// The k-th largest of keys(i), i < n, by radix selection with eight bits at a time. Called by the whole block.
template <class Keys>
__device__ u32 kth_largest(const Keys& keys, u32 n, u32 k) {
    __shared__ u32 histogram[HISTOGRAM];
    __shared__ u32 chosen, wanted;
    u32 prefix = 0;
    if (threadIdx.x == 0) wanted = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (u32 i = threadIdx.x; i < HISTOGRAM; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
            const u32 key = keys(i);
            if (shift == 24 || key >> (shift + 8) == prefix) atomicAdd(&histogram[key >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x < 32) {  // eight bins per lane, the highest first
            u32 own = 0;
            for (u32 b = 0; b < 8; ++b) own += histogram[255 - threadIdx.x * 8 - b];
            u32 through = own;
            for (u32 d = 1; d < 32; d <<= 1) {
                const u32 other = __shfl_up_sync(ALL, through, d);
                if (threadIdx.x >= d) through += other;
            }
            u32 left = wanted;
            __syncwarp();
            if (through >= left && through - own < left) {
                u32 bin = 255 - threadIdx.x * 8;
                for (left -= through - own; histogram[bin] < left; --bin) left -= histogram[bin];
                chosen = bin;
                wanted = left;
            }
        }
        __syncthreads();
        prefix = prefix << 8 | chosen;
        __syncthreads();
    }
    return prefix;
}

__device__ __forceinline__ void set_bit(u32* words, u32 bit) { atomicOr(&words[bit / 32], 1u << bit % 32); }

// Adds a location to a code under construction, in words of shared memory that were zeroed.
__device__ __forceinline__ void put(u32* words, u32 rank, u32 location, bool positive) {
    if (positive) set_bit(words, rank);
    for (u32 b = 0; b < LOW_BITS; ++b)
        if (location >> b & 1) set_bit(words, SIGN_BYTES * 8 + rank * LOW_BITS + b);
    set_bit(words, (SIGN_BYTES + LOW_BYTES) * 8 + (location >> LOW_BITS) + (LOW_BITS == 0 ? 0 : rank));
}

// One block of 512 threads per signal. Magnitudes are ordered like their bit patterns; ties are resolved for the lower
// location. Shared memory: N_BITS * 4 bytes of locations, and the code.
extern "C" __global__ void __launch_bounds__(512) pack_codes(const float* projected, u32 n_signals, u32 stride, u8* codes, double* totals) {
    u32* locations = reinterpret_cast<u32*>(dynamic_shared);
    u32* words = locations + N_BITS;
    const float* values = projected + u64(blockIdx.x) * WIDTH;
    const auto magnitude = [&](u32 row) { return __float_as_uint(values[row]) & 0x7fffffffu; };
    const u32 least = kth_largest(magnitude, WIDTH, N_BITS);
    __shared__ u32 above, taken, tied, parts[2][16];
    if (threadIdx.x == 0) above = taken = tied = 0;
    for (u32 i = threadIdx.x; i < (DATA_BYTES + 3) / 4; i += blockDim.x) words[i] = 0;
    __syncthreads();
    for (u32 row = threadIdx.x; row < WIDTH; row += blockDim.x)
        if (magnitude(row) > least) atomicAdd(&above, 1u);
    __syncthreads();
    const u32 wanted = N_BITS - above, lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    for (u32 start = 0; start < WIDTH; start += blockDim.x) {  // rows in ascending order, one per thread
        const u32 row = start + threadIdx.x, size = row < WIDTH ? magnitude(row) : 0;
        const bool equal = row < WIDTH && size == least;
        const u32 equals = __ballot_sync(ALL, equal), below = (1u << lane) - 1;
        if (lane == 0) parts[0][warp] = __popc(equals);
        __syncthreads();
        u32 tie = tied + __popc(equals & below);
        for (u32 w = 0; w < warp; ++w) tie += parts[0][w];
        const bool kept = row < WIDTH && (size > least || (equal && tie < wanted));
        const u32 keeps = __ballot_sync(ALL, kept);
        if (lane == 0) parts[1][warp] = __popc(keeps);
        __syncthreads();
        u32 rank = taken + __popc(keeps & below);
        for (u32 w = 0; w < warp; ++w) rank += parts[1][w];
        if (kept) {
            locations[rank] = row;
            put(words, rank, row, values[row] >= 0);
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (u32 w = 0; w < n_warps; ++w) tied += parts[0][w], taken += parts[1][w];
        __syncthreads();
    }
    if (warp == 0) {
        const double total = lane_sum(N_BITS, [&](u32 i) { return double(fabsf(values[locations[i]])); });
        if (lane == 0) totals[blockIdx.x] = total;
    }
    const u8* bytes = reinterpret_cast<const u8*>(words);
    for (u32 i = threadIdx.x; i < DATA_BYTES; i += blockDim.x) codes[u64(blockIdx.x) * stride + i] = bytes[i];
}
#else
// The nibble of a group of eight projections, and its largest magnitude; of equal ones the lower location wins.
__device__ __forceinline__ u32 largest_of_eight(const float* x, float& largest) {
    u32 location = 0;
    for (u32 j = 1; j < 8; ++j)
        if (fabsf(x[j]) > fabsf(x[location])) location = j;
    largest = fabsf(x[location]);
    return location | u32(x[location] >= 0) << 3;
}

// One warp per signal. Writes codes, `stride` bytes apart, and the sums of the kept magnitudes.
extern "C" __global__ void pack_codes(const float* projected, u32 n_signals, u32 stride, u8* codes, double* totals) {
    const u32 signal = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (signal >= n_signals) return;
    const float* x = projected + u64(signal) * WIDTH;
    float largest = 0;
    for (u32 b = lane; b < DATA_BYTES; b += 32) {
        u32 byte = 0;
        if (KIND == GROUPS)
            byte = largest_of_eight(x + 16 * b, largest) | largest_of_eight(x + 16 * b + 8, largest) << 4;
        else
            for (u32 j = 0; j < 8; ++j) byte |= u32(x[8 * b + j] >= 0) << j;
        codes[u64(signal) * stride + b] = u8(byte);
    }
    const double total = lane_sum(KIND == GROUPS ? WIDTH / 8 : WIDTH, [&](u32 i) {
        if (KIND == GROUPS) largest_of_eight(x + 8 * i, largest);
        return double(KIND == GROUPS ? largest : fabsf(x[i]));
    });
    if (lane == 0) totals[signal] = total;
}
#endif
