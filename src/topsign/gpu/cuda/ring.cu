// Viterbi encoding of trellis codes, with the arithmetic of native/kernels/ring.h: float32, without fused multiply-add.
//
// Sixteen threads share SIGNALS signals, one thread per state after a step; THREADS is the size of a block. An entry of
// `steps` has the first coordinate, the first column and the number of coordinates. Columns are the levels of a coordinate
// plus 128, [state][state before]; `squares` are the costs of all windows for coordinates of zero, [step][state][state
// before]. `slopes` has -2 * weight and the scale of each coordinate.

#define STATES 16
#define UNREACHABLE 1e30f

__device__ __forceinline__ u32 word_of(const uint4& four, u32 number) {
    return number == 0 ? four.x : number == 1 ? four.y : number == 2 ? four.z : four.w;
}

// Finds the state before step 0 on the cheapest free path that begins and ends in the middle of the ring, then the cheapest
// path that begins and ends with this state. Writes the state before each state, (n_steps, n_signals, 16), and the last
// state of each signal.
extern "C" __global__ void __launch_bounds__(THREADS) find_paths(const float* coordinates, const uint4* steps, const uint4* columns,
                                                                 const float4* squares, const float2* slopes, u32 n_coded, u32 n_steps,
                                                                 u32 n_signals, u8* from, u8* last) {
    const u32 state = threadIdx.x % STATES, team = threadIdx.x % 32 / STATES * STATES;
    const u32 mine = (blockIdx.x * THREADS + threadIdx.x) / STATES * SIGNALS;
    const float* x[SIGNALS];
    u32 start[SIGNALS];
#pragma unroll
    for (u32 s = 0; s < SIGNALS; ++s) {
        x[s] = coordinates + u64(min(mine + s, n_signals - 1)) * n_coded;  // threads without a signal write nothing
        start[s] = ALL;
    }
#pragma unroll 1
    for (u32 pass = 0; pass < 2; ++pass) {
        float totals[SIGNALS];
        u32 origins[SIGNALS];  // states before step 0 on the paths to this state
#pragma unroll
        for (u32 s = 0; s < SIGNALS; ++s) {
            totals[s] = pass == 0 || state == start[s] ? 0.f : UNREACHABLE;
            origins[s] = state;
        }
        for (u32 i = 0; i < n_steps; ++i) {
            const u32 step = pass == 0 ? (n_steps / 2 + i) % n_steps : i;
            const uint4 place = __ldg(steps + step);
            float costs[SIGNALS][STATES];
#pragma unroll
            for (u32 i = 0; i < STATES / 4; ++i) {
                const float4 four = __ldg(squares + (step * STATES + state) * (STATES / 4) + i);
#pragma unroll
                for (u32 s = 0; s < SIGNALS; ++s)
                    costs[s][4 * i] = four.x, costs[s][4 * i + 1] = four.y, costs[s][4 * i + 2] = four.z, costs[s][4 * i + 3] = four.w;
            }
            for (u32 c = 0; c < place.z; ++c) {
                const uint4 levels = __ldg(columns + place.y + c * STATES + state);
                const float2 pair = __ldg(slopes + place.x + c);
                float slope[SIGNALS];
#pragma unroll
                for (u32 s = 0; s < SIGNALS; ++s) slope[s] = __fmul_rn(pair.x, __fmul_rn(__ldg(x[s] + place.x + c), pair.y));
#pragma unroll
                for (u32 h = 0; h < STATES; ++h) {
                    // The byte is the mantissa of 2**23 + level + 128.
                    const float level = __uint_as_float(__byte_perm(word_of(levels, h / 4), 0x4b000000, 0x7650 + h % 4)) - 8388736.f;
#pragma unroll
                    for (u32 s = 0; s < SIGNALS; ++s) costs[s][h] = __fadd_rn(costs[s][h], __fmul_rn(slope[s], level));
                }
            }
#pragma unroll
            for (u32 s = 0; s < SIGNALS; ++s) {
                float best = __fadd_rn(__shfl_sync(ALL, totals[s], team), costs[s][0]);
                u32 before = 0;
#pragma unroll
                for (u32 h = 1; h < STATES; ++h) {  // of equal costs the lower state wins
                    const float other = __fadd_rn(__shfl_sync(ALL, totals[s], team + h), costs[s][h]);
                    if (other < best) best = other, before = h;
                }
                totals[s] = best;
                const u32 origin = __shfl_sync(ALL, origins[s], team + before);
                origins[s] = step == 0 ? before : origin;
                if (pass == 1 && mine + s < n_signals) from[(u64(step) * n_signals + mine + s) * STATES + state] = u8(before);
            }
        }
#pragma unroll
        for (u32 s = 0; s < SIGNALS && pass == 0; ++s) {
            float best = totals[s];
            start[s] = state;
            for (u32 d = 1; d < STATES; d *= 2) {
                const float other = __shfl_xor_sync(ALL, best, d);
                const u32 there = __shfl_xor_sync(ALL, start[s], d);
                if (other < best || (other == best && there < start[s])) best = other, start[s] = there;
            }
            start[s] = __shfl_sync(ALL, origins[s], team + start[s]);
            if (state == 0 && mine + s < n_signals) last[mine + s] = u8(start[s]);
        }
    }
}

// Writes the code of each signal and its factor: the norm of the reconstruction in units of 2**-14. `norms` are the
// contributions of windows to its square, (n_steps, 256).
extern "C" __global__ void write_codes(const u8* from, const u8* last, const double* norms, double constant, u32 n_steps, u32 n_signals,
                                       u8* codes) {
    const u32 signal = blockIdx.x * blockDim.x + threadIdx.x;
    if (signal >= n_signals) return;
    u8* code = codes + u64(signal) * (n_steps / 2 + 2);
    u32 state = last[signal], low = 0;
    for (u32 step = n_steps; step-- > 0;) {
        if (step % 2)
            low = state;
        else
            code[step / 2] = u8(state << 4 | low);
        state = from[(u64(step) * n_signals + signal) * STATES + state];
    }
    double square = constant;
    u32 before = code[n_steps / 2 - 1];
    for (u32 b = 0; b < n_steps / 2; ++b) {
        const u32 byte = code[b];
        square += norms[b * 512 + ((before & 15) << 4 | byte >> 4)];
        square += norms[b * 512 + 256 + byte];
        before = byte;
    }
    const u32 number = u32(fmin(65535., rint(sqrt(fmax(0., square)) * 16384)));
    code[n_steps / 2] = u8(number), code[n_steps / 2 + 1] = u8(number >> 8);
}
