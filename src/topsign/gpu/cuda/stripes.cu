// Conversion of adaptive and sign codes to groups of 32, and their validation.

// Four bytes from `offset` on; zeros past the end.
__device__ __forceinline__ u32 word_at(const u8* bytes, u32 offset, u32 end) {
    u32 word = 0;
    for (u32 b = 0; b < 4; ++b)
        if (offset + b < end) word |= u32(bytes[offset + b]) << 8 * b;
    return word;
}

// The compact layout and sign codes: the same words, aligned. One block per group.
extern "C" __global__ void convert_compact(const u8* codes, u32 n_codes, u32* stripes) {
    const u32 sign_bytes = (N_BITS + 7) / 8, low_bytes = SIGNS ? 0 : (N_BITS * LOW_BITS + 7) / 8;
    const u32 high_bytes = (HIGH_SIZE + 7) / 8, stride = sign_bytes + low_bytes + high_bytes;
    const u32 lane = threadIdx.x % 32, position = blockIdx.x * GROUP + lane;
    const u8* code = codes + u64(position) * stride;
    for (u32 j = threadIdx.x / 32; j < CODE_WORDS; j += blockDim.x / 32) {
        u32 word = 0;
        if (position < n_codes) {
            if (j < SIGN_WORDS) {
                word = word_at(code, 4 * j, sign_bytes);
                if (j == N_BITS / 32) word &= (1u << N_BITS % 32) - 1;
            } else if (j < SIGN_WORDS + LOW_WORDS) {
                word = word_at(code, sign_bytes + 4 * (j - SIGN_WORDS), sign_bytes + low_bytes);
            } else {
                word = __brev(word_at(code, sign_bytes + low_bytes + 4 * (j - SIGN_WORDS - LOW_WORDS), stride));
            }
        }
        stripes[(u64(blockIdx.x) * CODE_WORDS + j) * GROUP + lane] = word;
    }
}

// The fast layout; one thread per code. `stripes` must be zeroed.
extern "C" __global__ void convert_fast(const u8* codes, u32 n_codes, u32* stripes) {
    const u32 position = blockIdx.x * blockDim.x + threadIdx.x, n_blocks = (N_POOL + 127) / 128;
    if (SIGNS || position >= n_codes) return;
    const u8* code = codes + u64(position) * (n_blocks + N_BITS);
    u32* out = const_cast<u32*>(code_at(stripes, position));
    u32 block = 0, end = code[0];
    u64 lows = 0;
    for (u32 i = 0, pending = 0; i < N_BITS; ++i) {
        while (i >= end && block + 1 < n_blocks) end += code[++block];
        const u32 byte = code[n_blocks + i];
        const u32 location = block * 128 + (byte & 15) * 8 + (byte >> 4 & 7);
        out[i / 32 * GROUP] |= (byte >> 7) << i % 32;
        lows |= u64(location & LOW_MASK) << pending;
        for (pending += LOW_BITS; pending >= 32 || (i + 1 == N_BITS && pending > 0); pending -= min(pending, 32u)) {
            const u32 word = ((i + 1) * LOW_BITS - pending) / 32;
            out[(SIGN_WORDS + word) * GROUP] = u32(lows);
            lows >>= 32;
        }
        const u32 bit = min((location >> LOW_BITS) + (LOW_BITS == 0 ? 0 : i), u32(HIGH_SIZE > 0 ? HIGH_SIZE - 1 : 0));
        out[(SIGN_WORDS + LOW_WORDS + bit / 32) * GROUP] |= 0x80000000u >> bit % 32;
    }
}

// Finds the first invalid code: a code must have N_BITS ascending locations inside the pool. One warp per code.
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
            u32 smallest = ALL, largest = 0;  // of this lane
            for (u32 rank = through - __popc(word); word && done + rank < N_BITS; ++rank) {
                const u32 zeros = __clz(word), i = done + rank, at = i * LOW_BITS;
                word &= ~(0x80000000u >> zeros);
                u32 low = 0;
                if (LOW_BITS > 0) {
                    const u32 near = code[(SIGN_WORDS + at / 32) * GROUP];
                    const u32 far = at % 32 + LOW_BITS > 32 ? code[(SIGN_WORDS + at / 32 + 1) * GROUP] : 0;
                    low = __funnelshift_r(near, far, at % 32) & LOW_MASK;
                }
                const u32 next = location_of((first + lane) * 32 + zeros, i, low) + 1;  // 0 is less than all
                valid = valid && next > largest && next <= N_POOL;
                smallest = min(smallest, next);
                largest = next;
            }
            // Maximum of all lower lanes.
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
