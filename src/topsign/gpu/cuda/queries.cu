// Queries rounded to digits of eight bits: value = step * (d[0] * 254**(DIGITS - 1) + ... + d[DIGITS - 1]), |d| <= 127.

// One block per query; `width` > 0 writes a table for the gather kernel, 0 columns of the product. If `whole`, values are
// integers up to 127 and are not rounded. The bar of a query that is not finite is infinite, so it has no candidates.
// Starts a search: resets counts, best entries and bars.
extern "C" __global__ void round_queries(const float* queries, u32 width, u32 whole, u8* out, float* steps, float* margins,
                              float* bars, u32* counts, u64* held_keys, u32* held_positions, u32 n_held) {
    const u32 query = blockIdx.x, padded = (N_POOL + 127) / 128 * 128;
    const float* values = queries + u64(query) * N_POOL;
    float largest = 0, unusable = 0;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < N_POOL; i += blockDim.x) {
        largest = fmaxf(largest, fabsf(__ldg(values + i)));
        if (!isfinite(__ldg(values + i))) unusable = 1;
    }
    largest = block_max(largest);
    unusable = block_max(unusable);
    float limit = 127;
    for (int d = 1; d < DIGITS; ++d) limit = limit * RADIX + 126;  // 127 would round up to a digit of 128
    const float step = whole ? 1.f : largest > 0 && !unusable ? fmaxf(largest / limit, 1.17549435e-38f) : 1.f;
    const double inverse = 1 / double(step);
    float worst = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < N_POOL; i += blockDim.x) {
        const float value = unusable ? 0.f : __ldg(values + i);
        double rounded = rint(double(value) * inverse);
        rounded = fmin(fmax(rounded, -double(limit)), double(limit));
        worst = fmaxf(worst, __double2float_ru(fabs(double(value) - double(step) * rounded)));
        int left = int(rounded);
        for (int d = DIGITS - 1; d >= 0; --d) {
            int digit = left, power = 1;
            for (int e = 0; e < d; ++e) power *= RADIX;
            if (d > 0) digit = int(rint(double(left) / power));
            left -= digit * power;
            const u32 place = DIGITS - 1 - d;
            if (width == 1) {
                reinterpret_cast<int*>(out)[i] = digit;
            } else if (width) {
                out[i * width + query * DIGITS + place] = u8(digit + 128);
            } else {
                const u32 column = (query / 8 * DIGITS + place) * 8 + query % 8;
                out[u64(column) * padded + i] = u8(char(digit));
            }
        }
    }
    worst = block_max(worst);
    for (u32 i = threadIdx.x; i < n_held; i += blockDim.x) {
        held_keys[u64(query) * n_held + i] = 0;
        held_positions[u64(query) * n_held + i] = ALL;
    }
    if (threadIdx.x == 0) {
        // The error of a sum of N_BITS values is at most N_BITS * worst. Centers and bounds are computed in float32, with a
        // few rounding errors relative to the largest possible sum.
        const double margin = double(N_BITS) * (double(worst) * (1 + 1e-6) + 5e-7 * double(largest));
        steps[query] = step;
        margins[query] = whole ? 0.f : __double2float_ru(margin);
        bars[query] = unusable ? INFINITE : NOTHING;
        counts[query] = 0;
    }
}
