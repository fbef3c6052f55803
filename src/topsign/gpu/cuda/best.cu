// Exact scores of the candidates of a scan, and the best of them. The centers of trellis codes are exact already.

struct Entry {
    u64 key;  // ordered bits of the score; higher is better
    u32 position;
};
__device__ __forceinline__ bool before(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key > b.key : a.position < b.position;
}

// The score of a trellis code without its bias; adding 0 turns -0 into 0.
__device__ __forceinline__ float weighted(float center, const float* weights, u32 at) { return center * weights[at] + 0.f; }

#define BINS 1024
#define EACH 4  // candidates per thread and iteration

// Returns one of values(i), i < n, that at least k values and few more reach; NOTHING if fewer than k are above NOTHING.
// Called by the whole block. The first `room` values are cached, the others computed three times.
template <class Values>
__device__ float reached_by(const Values& worked_out, u32 n, u32 k, float* cache, u32 room) {
    __shared__ u32 bins[BINS];
    __shared__ u32 chosen;
    const auto values = [&](u32 i) { return i < room ? cache[i] : worked_out(i); };
    float low = INFINITE, high = NOTHING;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        const float value = worked_out(i);
        if (i < room) cache[i] = value;
        if (value > NOTHING) low = fminf(low, value), high = fmaxf(high, value);
    }
    low = -block_max(-low), high = block_max(high);
    const float scale = high > low ? (BINS - 1) / (high - low) : 0.f;
    const auto bin_of = [&](float value) { return min(u32((value - low) * scale), u32(BINS - 1)); };
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) bins[i] = 0;
    if (threadIdx.x == 0) chosen = ALL;
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        const float value = values(i);
        if (value > NOTHING) atomicAdd(&bins[bin_of(value)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // each lane sums consecutive bins, the highest first
        u32 own = 0;
        for (u32 b = 0; b < BINS / 32; ++b) own += bins[BINS - 1 - threadIdx.x * (BINS / 32) - b];
        u32 through = own;
        for (u32 d = 1; d < 32; d <<= 1) {
            const u32 other = __shfl_up_sync(ALL, through, d);
            if (threadIdx.x >= d) through += other;
        }
        if (through >= k && through - own < k) {
            u32 bin = BINS - 1 - threadIdx.x * (BINS / 32), left = k - (through - own);
            for (; bins[bin] < left; --bin) left -= bins[bin];
            chosen = bin;
        }
    }
    __syncthreads();
    const u32 bin = chosen;
    float least = INFINITE;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        const float value = values(i);
        if (value > NOTHING && bin_of(value) >= bin && bin != ALL) least = fminf(least, value);
    }
    least = -block_max(-least);
    return bin == ALL ? NOTHING : least;
}

// Returns whether this block is the last one of its query to arrive; writes of the others are then visible.
__device__ __forceinline__ bool is_last(u32* done, u32 query) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&done[query], 1u) + 1 == gridDim.x;
        if (last) done[query] = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
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

// Drops candidates that k others certainly exceed; one block per query. `weights` and `biases` begin with position
// `base`; `given` is the number of candidates per query if the scan kept every code, else 0. Shared memory: `room`
// floats.
extern "C" __global__ void __launch_bounds__(1024) narrow(const float* margins, const float* bars, const float* weights,
                                                         const float* biases, u32 base, u32 capacity, u32 given, u32 k, u32 room,
                                                         u32* counts, u32* positions, float* centers) {
    const u32 query = blockIdx.x;
    u32* mine = positions + u64(query) * capacity;
    float* middles = centers + u64(query) * capacity;
    const u32 n = bars[query] == INFINITE ? 0 : given ? given : min(counts[query], capacity);
    __shared__ u32 kept;
    const float margin = margins[query];
    const auto weight = [&](u32 position) { return weights ? weights[position - base] : 1.f; };
    const auto bias = [&](u32 position) { return biases ? biases[position - base] : 0.f; };
    float least = NOTHING;
    if (n > 2 * k && n > 64)
        least = reached_by([&](u32 i) { return middles[i] == NOTHING ? NOTHING : lower(middles[i], margin, weight(mine[i]), bias(mine[i])); }, n, k,
                           reinterpret_cast<float*>(dynamic_shared), room);
    if (threadIdx.x == 0) kept = 0;
    for (u32 start = 0; start < n; start += EACH * blockDim.x) {
        bool stays[EACH];
        u32 place[EACH];
        float middle[EACH];
        __syncthreads();
#pragma unroll
        for (u32 e = 0; e < EACH; ++e) {
            const u32 i = start + e * blockDim.x + threadIdx.x;
            place[e] = i < n ? mine[i] : base;
            middle[e] = i < n ? middles[i] : NOTHING;
            stays[e] = middle[e] != NOTHING && upper(middle[e], margin, weight(place[e]), bias(place[e])) >= least;
        }
        __syncthreads();
#pragma unroll
        for (u32 e = 0; e < EACH; ++e)
            if (stays[e]) {
                const u32 slot = atomicAdd(&kept, 1u);  // at most the index of a candidate that was read
                mine[slot] = place[e];
                if (TRELLIS) middles[slot] = middle[e];
            }
    }
    __syncthreads();
    if (threadIdx.x == 0) counts[query] = kept;
}

// Scores the candidates of a query (y) exactly and merges them with the best so far; blocks in x share a query. The best
// so far are sorted; key 0 is no entry. `room` is a power of two above k. Shared memory: room * 12 bytes, or SCRATCH words
// per warp.
extern "C" __global__ void __launch_bounds__(256) keep_best(const u32* stripes, const float* queries, const float* weights,
                                                            const float* biases, u32 base, u32 capacity, u32 k, u32 room,
                                                            u32* counts, u32* positions, float* scores, u64* held_keys,
                                                            u32* held_positions, float* bars, u32* done, u32 fill,
                                                            float* out_scores, long long* out_positions) {
    const u32 query = blockIdx.y, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    const u32* mine = positions + u64(query) * capacity;
    volatile float* exact = scores + u64(query) * capacity;
    const u32 n = counts[query];
#if TRELLIS  // one block
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) exact[i] = weighted(exact[i], weights, mine[i] - base);
    __syncthreads();
#else
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + warp * SCRATCH;
    for (u32 i = blockIdx.x * n_warps + warp; i < n; i += gridDim.x * n_warps) {
        const u32 at = mine[i] - base;
        const float score = exact_score(code_at(stripes, at), queries + u64(query) * N_POOL, scratch, weights, at);
        if (threadIdx.x % 32 == 0) exact[i] = score;
    }
    if (!is_last(done, query)) return;
#endif
    u64* keys = reinterpret_cast<u64*>(dynamic_shared);
    u32* places = reinterpret_cast<u32*>(keys + room);
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
        keys[i] = held_keys[u64(query) * k + i];
        places[i] = held_positions[u64(query) * k + i];
    }
    __syncthreads();
    for (u32 start = 0; start < n; start += room - k) {
        const u32 batch = min(n - start, room - k);
        u32 size = 2;
        while (size < k + batch) size *= 2;
        for (u32 i = threadIdx.x; i < size - k; i += blockDim.x) {
            const bool there = i < batch;
            const u32 position = there ? mine[start + i] : ALL;
            double score = there ? double(exact[start + i]) : 0;
            if (there && biases) score += double(biases[position - base]);
            keys[k + i] = there ? ordered(score) : 0;
            places[k + i] = position;
        }
        sort_entries(keys, places, size);
    }
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
        const bool there = keys[i] != 0;
        held_keys[u64(query) * k + i] = keys[i];
        held_positions[u64(query) * k + i] = places[i];
        out_scores[u64(query) * k + i] = there ? float(from_ordered(keys[i])) : __int_as_float(0x7fc00000);
        out_positions[u64(query) * k + i] = there ? (long long)places[i] : fill ? (long long)i : -1;
    }
    if (threadIdx.x == 0) {
        counts[query] = 0;
        if (keys[k - 1] != 0) bars[query] = __double2float_rd(from_ordered(keys[k - 1]));
    }
}

// Writes positions and scores of the candidates that reach a query's threshold; `kept` counts them. Blocks in x share a query.
extern "C" __global__ void keep_within(const u32* stripes, const float* queries, const float* weights, u32 base, u32 capacity,
                                       const u32* counts, const u32* positions, const float* thresholds, u32* kept,
                                       u32* out_positions, float* out_scores, const float* centers) {
    const u32 query = blockIdx.y, n = min(counts[query], capacity);
    const auto decide = [&](u32 at, float score) {
        if (!(score >= thresholds[query])) return;
        const u32 slot = atomicAdd(&kept[query], 1u);
        out_positions[u64(query) * capacity + slot] = at + base;
        out_scores[u64(query) * capacity + slot] = score;
    };
#if TRELLIS
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const u32 at = positions[u64(query) * capacity + i] - base;
        decide(at, weighted(centers[u64(query) * capacity + i], weights, at));
    }
#else
    const u32 warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + warp * SCRATCH;
    for (u32 i = blockIdx.x * n_warps + warp; i < n; i += gridDim.x * n_warps) {
        const u32 at = positions[u64(query) * capacity + i] - base;
        const float score = exact_score(code_at(stripes, at), queries + u64(query) * N_POOL, scratch, weights, at);
        if (threadIdx.x % 32 == 0) decide(at, score);
    }
#endif
}
