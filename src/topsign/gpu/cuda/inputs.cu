// Inputs of a head, rounded like queries by the CPU.

// One block per input. Value i is projection `places[i]` times `weights[i]`, or projection i if `places` is null; `mean`
// are the projections of the mean and `norms` the norms of inputs, each or null.
extern "C" __global__ void round_inputs(const float* projected, u32 n_pool, const u32* places, const float* weights, u32 width, float limit,
                                        const double* mean, const double* norms, short* values, float* scales, float* constants) {
    const u32 input = blockIdx.x;
    const float* x = projected + u64(input) * n_pool;
    const auto value = [&](u32 i) { return places ? __fmul_rn(x[places[i]], weights[i]) : x[i]; };
    float largest = 0, finite = 1;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        largest = fmaxf(largest, fabsf(value(i)));
        if (!isfinite(value(i))) finite = 0;
    }
    largest = block_fold(largest, [](float a, float b) { return fmaxf(a, b); });
    finite = block_fold(finite, [](float a, float b) { return fminf(a, b); });
    float step = largest > 0 ? largest / limit : 1.f;
    if (!(step > 0)) step = 1.f;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        const double rounded = rint(double(value(i)) / double(step));
        values[u64(input) * width + i] = finite ? short(fmax(-double(limit), fmin(double(limit), rounded))) : 0;
    }
    if (threadIdx.x >= 32) return;
    const double norm = norms ? norms[input] : 1, product = mean ? lane_sum(n_pool, [&](u32 i) { return double(x[i]) * mean[i]; }) : 0;
    if (threadIdx.x > 0) return;
    scales[input] = finite ? float(double(step) * norm) : __int_as_float(0x7fc00000);
    constants[input] = float(product / n_pool * norm);
}
