// Inputs of a trellis head: normalised, rotated and rounded to bytes in one kernel.

// Reduces one value per thread of a block by an associative and commutative function.
template <class Fold>
__device__ __forceinline__ double block_fold(double value, const Fold& fold) {
    __shared__ double parts[32];
    for (int d = 16; d; d >>= 1) value = fold(value, __shfl_xor_sync(ALL, value, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (u32 w = 1; w < blockDim.x / 32; ++w) value = fold(value, parts[w]);
    return value;
}

// One block per input. Coordinate i is value `places[i]` of the rotated input times `factors[i]`; `mean`, also rotated,
// may be null. The score of a code is its sum with the values, times the scale, plus the constant.
extern "C" __global__ void __launch_bounds__(ROTATE_THREADS) round_inputs(const float* inputs, const u8* signs, float shrink, float grow, float half_root,
                                                                          const u32* places, const double* factors, u32 n_coded,
                                                                          const double* mean, u8* values, float* scales, float* constants) {
    __shared__ double square;
    float* x = reinterpret_cast<float*>(dynamic_shared);
    const u32 n = N_FEATURES, input = blockIdx.x;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] = __ldg(inputs + u64(input) * n + i);
    __syncthreads();
    if (threadIdx.x < 32) {
        const double sum = lane_sum(n, [&](u32 i) { return double(x[spaced(i)]) * double(x[spaced(i)]); });
        if (threadIdx.x == 0) square = sum;
    }
    __syncthreads();
    const double norm = sqrt(square);
    const float inverse = norm > 0 ? float(1 / norm) : 0.f, length = float(norm);
    for (u32 i = threadIdx.x; i < n; i += ROTATE_THREADS) x[spaced(i)] *= inverse;
    __syncthreads();
    rotate_in_place(x, signs, shrink, half_root);
    const auto projected = [&](u32 i) { return double(POWER < n ? x[spaced(i)] * grow : x[spaced(i)]); };
    double largest = 0, product = 0;
    for (u32 i = threadIdx.x; i < n_coded; i += ROTATE_THREADS) largest = fmax(largest, fabs(projected(places[i]) * factors[i]));
    for (u32 i = threadIdx.x; mean && i < n; i += ROTATE_THREADS) product += projected(i) * mean[i];
    largest = block_fold(largest, [](double a, double b) { return fmax(a, b); });
    product = block_fold(product, [](double a, double b) { return a + b; });
    const double scale = largest / 127, divisor = scale > 0 ? scale : 1;
    for (u32 i = threadIdx.x; i < n_coded; i += ROTATE_THREADS)
        values[u64(input) * n_coded + i] = u8(int(rint(projected(places[i]) * factors[i] / divisor)));
    if (threadIdx.x == 0) {
        scales[input] = float(scale) * length;
        constants[input] = float(product) * length;
    }
}
