// How a thread reads an adaptive code.
//
// A code is SIGN_WORDS words of signs (bit i is that of location i), LOW_WORDS words of the low parts of its locations,
// and HIGH_WORDS words of the high parts in unary: location i of high part h sets bit h + i, counted from the *top* bit
// of each word. With LOW_BITS 0 the last part is a bitmap of the pool. Sign codes (SIGNS 1) have only signs.
//
// N_BITS, N_POOL, LOW_BITS and SIGNS are compile-time constants.

// The location of rank i, given the position of its unary bit.
__device__ __forceinline__ u32 location_of(u32 bit, u32 rank, u32 low) {
    return LOW_BITS == 0 ? bit : (bit - rank) << LOW_BITS | low;
}

// Locations read per 32 bits of the unary part, in which a location takes about two bits, or up to four in a bitmap.
#define WINDOW_ITEMS (HIGH_SIZE <= 2 * N_BITS ? 8 : 4)

// The position of the highest set bit of a word, counted from the top.
__device__ __forceinline__ u32 first_one(u32 word) {
#ifdef EMULATED
    return __clz(word);
#else
    u32 place;
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(place) : "r"(word));
    return place;
#endif
}

__device__ __forceinline__ void prefetch(const void* line) {
#ifndef EMULATED
    asm volatile("prefetch.global.L1 [%0];" ::"l"(line));
#endif
}

// Calls use(location, negative, rank) for each location in ascending order; `negative` is all ones or zero. All lanes of a
// warp are at the same rank, so signs and low parts are read together. Codes must be valid.
template <class Use>
__device__ __forceinline__ void for_each_kept(const u32* code, const Use& use) {
    const u32* highs = code + (SIGN_WORDS + LOW_WORDS) * GROUP;
    const auto window_at = [&](u32 bit) {
        const u32* word = highs + (bit & ~31u) * (GROUP / 32);
        const u32 first = word[0], second = word[GROUP];
        prefetch(word + 2 * GROUP);
        return __funnelshift_lc(second, first, bit & 31);
    };
    u32 lows[LOW_BITS + 2] = {}, next_signs = 0, next_lows[LOW_BITS + 1] = {};
    const auto load_next = [&](u32 start) {
        if (start < N_BITS) {
            next_signs = code[start];
#pragma unroll
            for (u32 j = 0; j < LOW_BITS; ++j) {
                const u32 word = start / 32 * LOW_BITS + j;
                next_lows[j] = N_BITS % 32 == 0 || word < LOW_WORDS ? code[(SIGN_WORDS + word) * GROUP] : 0;
            }
        }
    };
    u32 begin = 0;  // first bit of the window in the unary part
    load_next(0);
#pragma unroll 1
    for (u32 start = 0; start < N_BITS; start += 32) {
        const u32 negatives = ~next_signs;
#pragma unroll
        for (u32 j = 0; j < LOW_BITS; ++j) lows[j] = next_lows[j];
        load_next(start + 32);
#pragma unroll
        for (u32 group = 0; group < 32; group += WINDOW_ITEMS) {
            if (N_BITS % 32 != 0 && start + group >= N_BITS) break;
            const u32 count = N_BITS % 32 == 0 ? WINDOW_ITEMS : min(u32(WINDOW_ITEMS), N_BITS - start - group);
            u32 window = window_at(begin), place = 0;
            if (__popc(window) >= count) {
#pragma unroll
                for (u32 j = group; j < group + WINDOW_ITEMS; ++j) {
                    if (N_BITS % 32 != 0 && start + j >= N_BITS) break;
                    place = first_one(window);
                    window ^= 0x80000000u >> place;
                    const u32 at = j * LOW_BITS;
                    const u32 low = __funnelshift_r(lows[at / 32], lows[at / 32 + 1], at % 32) & LOW_MASK;
                    use(location_of(begin + place, start + j, low), u32(int(negatives << (31 - j)) >> 31), start + j);
                }
            } else {  // rare: these locations take more than one window
#pragma unroll 1
                for (u32 rank = start + group; rank < start + group + count; ++rank) {
                    while (window == 0) {
                        begin += 32;
                        window = window_at(begin);
                    }
                    place = first_one(window);
                    window ^= 0x80000000u >> place;
                    const u32 at = rank * LOW_BITS, near = LOW_BITS == 0 ? 0 : code[(SIGN_WORDS + at / 32) * GROUP];
                    const u32 far = at % 32 + LOW_BITS > 32 ? code[(SIGN_WORDS + at / 32 + 1) * GROUP] : 0;
                    const u32 low = __funnelshift_r(near, far, at % 32) & LOW_MASK;
                    use(location_of(begin + place, rank, low), u32(int(negatives << (31 - rank % 32)) >> 31), rank);
                }
            }
            begin += place + 1;
        }
    }
}
