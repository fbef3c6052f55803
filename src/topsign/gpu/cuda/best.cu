// The candidates of a scan scored exactly, in the one order of all kernels, and the best of them.

struct Entry {
    u64 key;  // of the score, ordered; higher is better
    u32 position;
};
__device__ __forceinline__ bool before(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key > b.key : a.position < b.position;
}

#define STAGED (N_BITS < 1024 ? N_BITS : 1024)  // locations of 32 words of the unary part, at most
#define STAGED_CODE (CODE_WORDS <= 2048 ? CODE_WORDS : 0)
#define FLYING (N_BITS >= 512 ? 16 : 4)  // values of the query on their way at a time, for each lane
#define SCRATCH (STAGED_CODE + STAGED)  // words of shared memory for each warp

// The sum of a query's values at the locations of a code, each with the code's sign: in double precision, term i into
// lane i mod 16, lanes folded in half. One warp; `scratch` is its own. The result is that of lane 0.
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

#define BINS 1024
#define EACH 4  // candidates of a thread at a time

// The value of one of values(i), i < n, that at least k of them reach, and few more; NOTHING where fewer are above
// NOTHING. The whole block. Values are worked out once where the `cache` of `room` floats holds them.
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
    if (threadIdx.x < 32) {  // each lane has a run of bins, the highest first
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

// Whether this block is the last of those of a query to come here; all that the others wrote is then visible.
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

// A first bar for each query (y): the score that k of the first n codes reach. Blocks in x share a query.
extern "C" __global__ void set_bars(const u32* stripes, const float* queries, const float* weights, const float* biases,
                                    const u32* alive, u32 n, u32 k, u32 capacity, float* scores, u32* done, float* bars) {
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + threadIdx.x / 32 * SCRATCH;
    const u32 query = blockIdx.y, n_warps = blockDim.x / 32;
    volatile float* mine = scores + u64(query) * capacity;
    if (bars[query] == INFINITE) return;
    for (u32 code = blockIdx.x * n_warps + threadIdx.x / 32; code < n; code += gridDim.x * n_warps) {
        const float score = exact_score(code_at(stripes, code), queries + u64(query) * N_POOL, scratch, weights, code);
        const bool dead = alive && !get_bit(alive, code);
        if (threadIdx.x % 32 == 0) mine[code] = dead ? NOTHING : biases ? __fadd_rd(score, biases[code]) : score;
    }
    if (!is_last(done, query)) return;
    float* cache = reinterpret_cast<float*>(dynamic_shared);
    const float least = reached_by([&](u32 i) { return mine[i]; }, n, k, cache, blockDim.x / 32 * SCRATCH);
    if (threadIdx.x == 0) bars[query] = next_below(least);
}

// Drops the candidates that k others certainly exceed: one block per query. `weights` and `biases` are those of
// position `base`; `given` is the number of candidates of each query where the scan kept every code, else 0. Shared
// memory: `room` floats.
extern "C" __global__ void __launch_bounds__(1024) narrow(const float* margins, const float* bars, const float* weights,
                                                         const float* biases, u32 base, u32 capacity, u32 given, u32 k, u32 room,
                                                         u32* counts, u32* positions, const float* centers) {
    const u32 query = blockIdx.x;
    u32* mine = positions + u64(query) * capacity;
    const float* middles = centers + u64(query) * capacity;
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
        __syncthreads();
#pragma unroll
        for (u32 e = 0; e < EACH; ++e) {
            const u32 i = start + e * blockDim.x + threadIdx.x;
            place[e] = i < n ? mine[i] : base;
            stays[e] = i < n && middles[i] != NOTHING && upper(middles[i], margin, weight(place[e]), bias(place[e])) >= least;
        }
        __syncthreads();
#pragma unroll
        for (u32 e = 0; e < EACH; ++e)
            if (stays[e]) mine[atomicAdd(&kept, 1u)] = place[e];  // never past what was read
    }
    __syncthreads();
    if (threadIdx.x == 0) counts[query] = kept;
}

// Scores the candidates of a query (y) exactly and merges them with those held; blocks in x share a query. Held entries
// are sorted; key 0 is none. `room` is a power of two, above k. Shared memory: room * 12 bytes, or SCRATCH words for
// each warp.
extern "C" __global__ void __launch_bounds__(256) keep_best(const u32* stripes, const float* queries, const float* weights,
                                                            const float* biases, u32 base, u32 capacity, u32 k, u32 room,
                                                            u32* counts, u32* positions, float* scores, u64* held_keys,
                                                            u32* held_positions, float* bars, u32* done, u32 fill,
                                                            float* out_scores, long long* out_positions) {
    const u32 query = blockIdx.y, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + warp * SCRATCH;
    const u32* mine = positions + u64(query) * capacity;
    volatile float* exact = scores + u64(query) * capacity;
    const u32 n = counts[query];
    for (u32 i = blockIdx.x * n_warps + warp; i < n; i += gridDim.x * n_warps) {
        const u32 at = mine[i] - base;
        const float score = exact_score(code_at(stripes, at), queries + u64(query) * N_POOL, scratch, weights, at);
        if (threadIdx.x % 32 == 0) exact[i] = score;
    }
    if (!is_last(done, query)) return;
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

// Candidates that reach a query's threshold: their positions and scores, `kept` counts them. Blocks in x share a query.
extern "C" __global__ void keep_within(const u32* stripes, const float* queries, const float* weights, u32 base, u32 capacity,
                                       const u32* counts, const u32* positions, const float* thresholds, u32* kept,
                                       u32* out_positions, float* out_scores) {
    const u32 query = blockIdx.y, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    u32* scratch = reinterpret_cast<u32*>(dynamic_shared) + warp * SCRATCH;
    const u32 n = min(counts[query], capacity);
    for (u32 i = blockIdx.x * n_warps + warp; i < n; i += gridDim.x * n_warps) {
        const u32 at = positions[u64(query) * capacity + i] - base;
        const float score = exact_score(code_at(stripes, at), queries + u64(query) * N_POOL, scratch, weights, at);
        if (threadIdx.x % 32 == 0 && score >= thresholds[query]) {
            const u32 slot = atomicAdd(&kept[query], 1u);
            out_positions[u64(query) * capacity + slot] = at + base;
            out_scores[u64(query) * capacity + slot] = score;
        }
    }
}

// The first code that is not valid: its locations must ascend inside the pool, N_BITS of them. One warp per code.
extern "C" __global__ void check_codes(const u32* stripes, u32 n_codes, u32* first_bad) {
#if !SIGNS
    const u32 lane = threadIdx.x % 32;
    for (u32 position = (blockIdx.x * blockDim.x + threadIdx.x) / 32; position < n_codes; position += gridDim.x * blockDim.x / 32) {
        const u32* code = code_at(stripes, position);
        u32 done = 0, previous = 0;
        bool valid = true;
        for (u32 first = 0; first < HIGH_WORDS; first += 32) {
            u32 word = first + lane < HIGH_WORDS ? code[(SIGN_WORDS + LOW_WORDS + first + lane) * GROUP] : 0;
            u32 through = __popc(word);
            for (u32 d = 1; d < 32; d <<= 1) {
                const u32 other = __shfl_up_sync(ALL, through, d);
                if (lane >= d) through += other;
            }
            const u32 count = __shfl_sync(ALL, through, 31);
            u32 smallest = ALL, largest = 0;  // of this lane; lanes ascend when their ranges do
            for (u32 rank = through - __popc(word); word && done + rank < N_BITS; ++rank) {
                const u32 zeros = __clz(word), i = done + rank, at = i * LOW_BITS;
                word &= ~(0x80000000u >> zeros);
                u32 low = 0;
                if (LOW_BITS > 0) {
                    const u32 near = code[(SIGN_WORDS + at / 32) * GROUP];
                    const u32 far = at % 32 + LOW_BITS > 32 ? code[(SIGN_WORDS + at / 32 + 1) * GROUP] : 0;
                    low = __funnelshift_r(near, far, at % 32) & LOW_MASK;
                }
                const u32 next = location_of((first + lane) * 32 + zeros, i, low) + 1;  // so that 0 is before all
                valid = valid && next > largest && next <= N_POOL;
                smallest = min(smallest, next);
                largest = next;
            }
            // The largest of all lanes before this one.
            u32 highest = largest;
            for (u32 d = 1; d < 32; d <<= 1) {
                const u32 other = __shfl_up_sync(ALL, highest, d);
                if (lane >= d) highest = max(highest, other);
            }
            u32 ahead = __shfl_up_sync(ALL, highest, 1);
            ahead = max(lane == 0 ? 0 : ahead, previous);
            valid = valid && smallest > ahead;
            previous = max(previous, __shfl_sync(ALL, highest, 31));
            done += count;
        }
        if (!__all_sync(ALL, valid) || done != N_BITS)
            if (lane == 0) atomicMin(first_bad, position);
    }
#endif
}
