// The randomised Hadamard rotation of signals.
//
// Additions have the order of the CPU kernels, so that the bits are equal: butterflies by ascending stride, without fused
// multiply-add. N_FEATURES, POWER (its largest power of two), ROUNDS and ROTATE_THREADS are compile-time constants.

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
// block. Unless `norms` is null, it gets the norms of the signals, which are divided by them before.
extern "C" __global__ void __launch_bounds__(ROTATE_THREADS) rotate(const float* signals, const u8* signs, const u32* coordinates, u32 n_pool, float shrink,
                       float grow, float half_root, float* work, double* norms, float* out) {
    const u32 n = N_FEATURES, signal = blockIdx.x, op = blockIdx.y, bytes = (n + 7) / 8;
    float* x = work ? work + (u64(op) * gridDim.x + signal) * (spaced(n) + 1) : reinterpret_cast<float*>(dynamic_shared);
#pragma unroll 8
    for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] = __ldg(signals + u64(signal) * n + i);
    if (norms) {
        __shared__ float inverse;
        __syncthreads();
        const double norm = threadIdx.x < 32 ? sqrt(lane_sum(n, [&](u32 i) { return double(x[spaced(i)]) * double(x[spaced(i)]); })) : 0;
        if (threadIdx.x == 0) {
            inverse = norm > 0 ? float(1 / norm) : 0.f;
            if (op == 0) norms[signal] = norm;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] *= inverse;
    }
    rotate_in_place(x, signs + u64(op) * ROUNDS * bytes, shrink, half_root);
    const u32 first = op * n, count = min(n, n_pool - first);
    const bool last = op + 1 == gridDim.y;
    for (u32 i = threadIdx.x; i < count; i += ROTATE_THREADS) {
        const float value = x[spaced(last ? coordinates[i] : i)];
        out[u64(signal) * n_pool + first + i] = POWER < n ? value * grow : value;
    }
}
