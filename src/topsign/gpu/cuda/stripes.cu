// Codes of the layouts into groups of 32, and a check that they are valid.

// Four bytes from `offset` on, zeros past the end.
__device__ __forceinline__ u32 word_at(const u8* bytes, u32 offset, u32 end) {
    u32 word = 0;
    for (u32 b = 0; b < 4; ++b)
        if (offset + b < end) word |= u32(bytes[offset + b]) << 8 * b;
    return word;
}

// The compact layout, and that of all signs: the same words, aligned. One block per group.
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

// The fast layout: one thread per code. `stripes` holds zeros before.
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
