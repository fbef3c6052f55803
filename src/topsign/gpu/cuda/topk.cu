// Searches: their start, and the best of the candidates of a scan.

// Sets the bar of a query (x) and clears earlier results. A query that is not finite has an infinite bar, so it has no
// candidates.
extern "C" __global__ void start_search(const float* scales, const float* constants, u32 k, float* bars, u32* counts, u64* held_keys,
                                        u32* held_positions) {
    const u32 query = blockIdx.x;
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) held_keys[u64(query) * k + i] = 0, held_positions[u64(query) * k + i] = ALL;
    if (threadIdx.x > 0) return;
    bars[query] = isfinite(scales[query]) && isfinite(constants[query]) ? NOTHING : INFINITE;
    counts[query] = 0;
}

struct Entry {
    u64 key;  // ordered bits of the value with its bias; higher is better, 0 is no entry
    u32 position;
};
__device__ __forceinline__ bool before(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key > b.key : a.position < b.position;
}

__device__ void sort_entries(u64* keys, u32* positions, u32 size) {
    for (u32 width = 2; width <= size; width *= 2)
        for (u32 distance = width / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const u32 low = i / distance * distance * 2 + i % distance, high = low + distance;
                const Entry a{keys[low], positions[low]}, b{keys[high], positions[high]};
                if (before(b, a) == ((low & width) == 0)) {
                    keys[low] = b.key, positions[low] = b.position;
                    keys[high] = a.key, positions[high] = a.position;
                }
            }
        }
    __syncthreads();
}

// Merges the candidates of a query (x) with the best so far, which are sorted. `biases` begin with position `base`; `room`
// is a power of two, at least k plus the number of threads. Shared memory: room * 12 bytes.
extern "C" __global__ void __launch_bounds__(256) keep_best(const float* biases, u32 base, u32 capacity, u32 k, u32 room,
                                                            u32* counts, const u32* positions, const float* values, u64* held_keys,
                                                            u32* held_positions, float* bars, u32 fill, float* out_values,
                                                            long long* out_positions) {
    u64* keys = reinterpret_cast<u64*>(dynamic_shared);
    u32* places = reinterpret_cast<u32*>(keys + room);
    __shared__ u32 added;
    const u32 query = blockIdx.x, n = min(counts[query], capacity);
    const u64 candidates = u64(query) * capacity, held = u64(query) * k;
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) keys[i] = held_keys[held + i], places[i] = held_positions[held + i];
    if (threadIdx.x == 0) added = 0;
    __syncthreads();
    for (u32 start = 0; start < n; start += blockDim.x) {
        const u32 i = start + threadIdx.x;
        if (i < n) {
            const u32 position = positions[candidates + i];
            const double bias = biases ? double(biases[position - base]) : 0;  // adding 0 turns -0 into 0
            const Entry one{ordered(double(values[candidates + i]) + bias), position};
            if (before(one, Entry{keys[k - 1], places[k - 1]})) {
                const u32 slot = k + atomicAdd(&added, 1u);
                keys[slot] = one.key, places[slot] = position;
            }
        }
        __syncthreads();
        const u32 filled = k + added;
        __syncthreads();
        if (filled + blockDim.x <= room && start + blockDim.x < n) continue;
        u32 size = 2;
        while (size < filled) size *= 2;
        for (u32 j = filled + threadIdx.x; j < size; j += blockDim.x) keys[j] = 0, places[j] = ALL;
        if (threadIdx.x == 0) added = 0;
        sort_entries(keys, places, size);
    }
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
        const bool there = keys[i] != 0;
        held_keys[held + i] = keys[i], held_positions[held + i] = places[i];
        out_values[held + i] = there ? float(from_ordered(keys[i])) : __int_as_float(0x7fc00000);
        out_positions[held + i] = there ? (long long)places[i] : fill ? (long long)i : -1;
    }
    if (threadIdx.x == 0) {
        counts[query] = 0;
        if (keys[k - 1] != 0) bars[query] = __double2float_rd(from_ordered(keys[k - 1]));
    }
}

// Transposes rows of bytes to blocks of 32 in byte planes, which were zeroed.
extern "C" __global__ void to_planes(const u8* rows, u32 count, u32 code_bytes, u8* planes) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x, code = i / code_bytes;
    if (code < count) planes[(code / 32 * code_bytes + i % code_bytes) * 32 + code % 32] = rows[i];
}
