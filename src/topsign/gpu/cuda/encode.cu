// Encoding: the randomised Hadamard rotation of signals, and codes of their largest projections.
//
// Additions have the order of the CPU kernels, so that the bits are equal: butterflies by ascending stride, without fused
// multiply-add. N_FEATURES, POWER (its largest power of two), ROUNDS, ROTATE_THREADS and FAST (layout of the codes) are
// compile-time constants.

#if N_FEATURES
// Index of value i of a signal in shared memory: one word in 33 is unused, so that power-of-two strides use all banks.
__device__ __forceinline__ u32 spaced(u32 i) { return i + i / 32; }

// Levels of the transform from stride H on, up to three per pass: 2**LEVELS values per thread.
template <int LEVELS, u32 H>
__device__ __forceinline__ void butterflies(float* x, u32 first) {
    constexpr u32 radix = 1 << LEVELS;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < POWER / radix; i += ROTATE_THREADS) {
        const u32 at = first + i / H * H * radix + i % H;
        float v[radix];
#pragma unroll
        for (u32 q = 0; q < radix; ++q) v[q] = x[spaced(at + q * H)];
#pragma unroll
        for (u32 stride = 1; stride < radix; stride *= 2)
#pragma unroll
            for (u32 q = 0; q < radix; ++q)
                if (!(q & stride)) {
                    const float a = v[q], b = v[q + stride];
                    v[q] = a + b;
                    v[q + stride] = a - b;
                }
#pragma unroll
        for (u32 q = 0; q < radix; ++q) x[spaced(at + q * H)] = v[q];
    }
    __syncthreads();
}

template <u32 H>
__device__ __forceinline__ void transform(float* x, u32 first) {
    if constexpr (8 * H <= POWER) {
        butterflies<3, H>(x, first);
        transform<8 * H>(x, first);
    } else if constexpr (4 * H == POWER) {
        butterflies<2, H>(x, first);
    } else if constexpr (2 * H == POWER) {
        butterflies<1, H>(x, first);
    }
}

// Rotates a signal in place; `flips` is (ROUNDS, ceil(N_FEATURES / 8)). Called by the whole block.
__device__ __forceinline__ void rotate_in_place(float* x, const u8* flips, float shrink, float half_root) {
    const u32 n = N_FEATURES;
    for (u32 round = 0; round < ROUNDS; ++round, flips += (n + 7) / 8) {
        const float scale = POWER == n && round > 0 ? shrink : 1.f;
#pragma unroll 8
        for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] *= __ldg(flips + i / 8) >> i % 8 & 1 ? scale : -scale;
        __syncthreads();
        const u32 begin = round % 2 ? n - POWER : 0;
        transform<1>(x, begin);
        if (POWER < n) {
            for (u32 i = threadIdx.x; i < POWER; i += ROTATE_THREADS) x[spaced(begin + i)] *= shrink;
            __syncthreads();
            for (u32 i = threadIdx.x; i < n / 2; i += ROTATE_THREADS) {
                const float a = x[spaced(i)], b = x[spaced(n - n / 2 + i)];
                x[spaced(i)] = (a + b) * half_root;
                x[spaced(n - n / 2 + i)] = (a - b) * half_root;
            }
            __syncthreads();
        }
    }
}

// One block per signal (x) and per square operator (y). `signs` is (n_operators, ROUNDS, ceil(N_FEATURES / 8)); the
// last operator returns only its `coordinates`. If a signal does not fit in shared memory, `work` has a row for each
// block.
extern "C" __global__ void __launch_bounds__(ROTATE_THREADS) rotate(const float* signals, const u8* signs, const u32* coordinates, u32 n_pool, float shrink,
                       float grow, float half_root, float* work, float* out) {
    const u32 n = N_FEATURES, signal = blockIdx.x, op = blockIdx.y, bytes = (n + 7) / 8;
    float* x = work ? work + (u64(op) * gridDim.x + signal) * (spaced(n) + 1) : reinterpret_cast<float*>(dynamic_shared);
#pragma unroll 8
    for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] = __ldg(signals + u64(signal) * n + i);
    rotate_in_place(x, signs + u64(op) * ROUNDS * bytes, shrink, half_root);
    const u32 first = op * n, count = min(n, n_pool - first);
    const bool last = op + 1 == gridDim.y;
    for (u32 i = threadIdx.x; i < count; i += ROTATE_THREADS) {
        const float value = x[spaced(last ? coordinates[i] : i)];
        out[u64(signal) * n_pool + first + i] = POWER < n ? value * grow : value;
    }
}
#endif

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

// Sums in double precision, term i in lane i mod 16, lanes folded in half; half a warp per sum.
template <class Term>
__device__ __forceinline__ double lane_sum(u32 n, const Term& term) {
    const u32 lane = threadIdx.x % 32;
    double sum = 0;
    if (lane < 16)
        for (u32 i = lane; i < n; i += 16) sum += term(i);
    for (int half = 8; half > 0; half /= 2) sum += __shfl_down_sync(ALL, sum, half);
    return sum;
}

extern "C" __global__ void square_norms(const float* signals, u32 n_signals, u32 n_features, double* out) {
    const u32 signal = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (signal >= n_signals) return;
    const float* x = signals + u64(signal) * n_features;
    const double sum = lane_sum(n_features, [&](u32 i) { return double(x[i]) * double(x[i]); });
    if (threadIdx.x % 32 == 0) out[signal] = sum;
}

extern "C" __global__ void magnitude_sums(const float* rows, u32 n_rows, u32 width, double* out) {
    const u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= n_rows) return;
    const float* x = rows + u64(row) * width;
    const double sum = lane_sum(width, [&](u32 i) { return double(fabsf(x[i])); });
    if (threadIdx.x % 32 == 0) out[row] = sum;
}

// Packs the signs of all projections; one thread per byte.
extern "C" __global__ void pack_bits(const float* projected, u32 n_signals, u8* out) {
    const u32 bytes = (N_POOL + 7) / 8;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < u64(n_signals) * bytes; i += u64(gridDim.x) * blockDim.x) {
        const float* values = projected + i / bytes * N_POOL;
        u32 byte = 0;
        for (u32 b = 0; b < 8; ++b) {
            const u32 row = u32(i % bytes) * 8 + b;
            if (row < N_POOL && values[row] >= 0) byte |= 1u << b;
        }
        out[i] = u8(byte);
    }
}

#if !SIGNS
#if FAST
#define CODE_BYTES ((N_POOL + 127) / 128 + N_BITS)
#else
#define SIGN_BYTES ((N_BITS + 7) / 8)
#define LOW_BYTES ((N_BITS * LOW_BITS + 7) / 8)
#define CODE_BYTES (SIGN_BYTES + LOW_BYTES + (HIGH_SIZE + 7) / 8)
#endif

__device__ __forceinline__ void set_bit(u32* words, u32 bit) { atomicOr(&words[bit / 32], 1u << bit % 32); }

// Adds a location to a code under construction, in words of shared memory that were zeroed.
__device__ __forceinline__ void put(u32* words, u32 rank, u32 location, bool positive) {
#if FAST
    const u32 n_blocks = (N_POOL + 127) / 128, offset = location % 128, at = n_blocks + rank;
    atomicAdd(&words[location / 128 / 4], 1u << location / 128 % 4 * 8);  // counts are at most 128, so they do not carry
    atomicOr(&words[at / 4], (u32(positive) << 7 | (offset & 7) << 4 | offset >> 3) << at % 4 * 8);
#else
    if (positive) set_bit(words, rank);
    for (u32 b = 0; b < LOW_BITS; ++b)
        if (location >> b & 1) set_bit(words, SIGN_BYTES * 8 + rank * LOW_BITS + b);
    set_bit(words, (SIGN_BYTES + LOW_BYTES) * 8 + (location >> LOW_BITS) + (LOW_BITS == 0 ? 0 : rank));
#endif
}

// Magnitudes are ordered like their bit patterns; one block per signal. Shared memory: N_BITS * 4 bytes of locations, and
// the code. Ties are resolved for the lower row.
extern "C" __global__ void __launch_bounds__(512) pack_codes(const float* projected, u8* codes, double* totals) {
    u32* locations = reinterpret_cast<u32*>(dynamic_shared);
    u32* words = locations + N_BITS;
    const float* values = projected + u64(blockIdx.x) * N_POOL;
    const auto magnitude = [&](u32 row) { return __float_as_uint(values[row]) & 0x7fffffffu; };
    const u32 least = kth_largest(magnitude, N_POOL, N_BITS);
    __shared__ u32 above, taken, tied, parts[2][16];
    if (threadIdx.x == 0) above = taken = tied = 0;
    for (u32 i = threadIdx.x; i < (CODE_BYTES + 3) / 4; i += blockDim.x) words[i] = 0;
    __syncthreads();
    for (u32 row = threadIdx.x; row < N_POOL; row += blockDim.x)
        if (magnitude(row) > least) atomicAdd(&above, 1u);
    __syncthreads();
    const u32 wanted = N_BITS - above, lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    for (u32 start = 0; start < N_POOL; start += blockDim.x) {  // rows in ascending order, one per thread
        const u32 row = start + threadIdx.x, size = row < N_POOL ? magnitude(row) : 0;
        const bool equal = row < N_POOL && size == least;
        const u32 equals = __ballot_sync(ALL, equal), below = (1u << lane) - 1;
        if (lane == 0) parts[0][warp] = __popc(equals);
        __syncthreads();
        u32 tie = tied + __popc(equals & below);
        for (u32 w = 0; w < warp; ++w) tie += parts[0][w];
        const bool kept = row < N_POOL && (size > least || (equal && tie < wanted));
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
    for (u32 i = threadIdx.x; i < CODE_BYTES; i += blockDim.x) codes[u64(blockIdx.x) * CODE_BYTES + i] = bytes[i];
}
#endif
