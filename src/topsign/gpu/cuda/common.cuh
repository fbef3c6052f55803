// How codes lie on the card, and how a thread reads one.
//
// Codes stand in groups of 32, one per lane of a warp: word j of the code of a lane is at [group][j][lane], so that
// lanes that read their codes in step read whole lines of memory. A code is SIGN_WORDS words of signs (bit i is that
// of location i), LOW_WORDS words of the low parts of its locations, and HIGH_WORDS words of the high parts in unary:
// location i of high part h sets bit h + i, counted from the *top* bit of each word. With LOW_BITS 0 the last part is
// a bitmap of the pool. Codes of all signs (SIGNS 1) have the signs alone.
//
// N_BITS, N_POOL, LOW_BITS and SIGNS are constants of the compilation.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define NOTHING (-INFINITE)
#define GROUP 32

#define SIGN_WORDS ((N_BITS + 31) / 32)
#if SIGNS
#define LOW_WORDS 0
#define HIGH_SIZE 0
#else
#define LOW_WORDS ((N_BITS * LOW_BITS + 31) / 32)
#define HIGH_SIZE (LOW_BITS == 0 ? N_POOL : N_BITS + ((N_POOL - 1) >> LOW_BITS))
#endif
#define HIGH_WORDS ((HIGH_SIZE + 31) / 32)
#define CODE_WORDS (SIGN_WORDS + LOW_WORDS + HIGH_WORDS)
#define LOW_MASK ((1u << LOW_BITS) - 1)

#ifdef EMULATED
using emulated::dynamic_shared;
#else
extern __shared__ __align__(1024) unsigned char dynamic_shared[];
#endif

// The code at a position, as one lane of its group sees it; its words are GROUP apart.
__device__ __forceinline__ const u32* code_at(const u32* stripes, u64 position) {
    return stripes + position / GROUP * (u64(CODE_WORDS) * GROUP) + position % GROUP;
}

// The location of rank i whose unary bit stands at `bit`.
__device__ __forceinline__ u32 location_of(u32 bit, u32 rank, u32 low) {
    return LOW_BITS == 0 ? bit : (bit - rank) << LOW_BITS | low;
}

// Locations read from 32 bits of the unary part, where they take about two bits each, or up to four in a bitmap.
#define WINDOW_ITEMS (HIGH_SIZE <= 2 * N_BITS ? 8 : 4)

// The place of the highest one of a word, counted from the top.
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

// Calls use(location, negative, rank) for all kept locations in turn; `negative` is all ones or zero. Every lane of a
// warp is at the same rank, so signs and low parts are read together. Codes must be valid.
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
    u32 begin = 0;  // of the window, in bits of the unary part
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

// Floats as integers in the same order, and doubles.
__device__ __forceinline__ u32 ordered(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ u64 ordered(double value) {
    const u64 bits = u64(__double_as_longlong(value));
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ double from_ordered(u64 key) {
    return __longlong_as_double((long long)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

// The float before this one; nothing is before NOTHING.
__device__ __forceinline__ float next_below(float value) {
    const u32 key = ordered(value) - 1;
    return value == NOTHING ? value : __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The largest value of all threads of a block.
__device__ __forceinline__ float block_max(float value) {
    __shared__ float parts[32];
    for (int d = 16; d; d >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL, value, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : NOTHING;
    for (int d = 16; d; d >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL, value, d));
    return value;
}

__device__ __forceinline__ bool get_bit(const u32* bits, u32 i) { return bits[i / 32] >> i % 32 & 1; }

// Sums of rounded queries as scores, and who keeps them. Of a query q and a code: center = step * (integer sum); the
// sum of the query's own values lies within `margin` of the center. Entries that may score above the bar are kept.
struct Candidates {
    const float *steps, *margins, *bars;  // one per query
    const float *weights, *biases;        // one per code, or null
    const u32* alive;                     // bitmap of the codes that take part, or null
    u32 base;                             // position of the first code of the chunk
    u32 n_codes, n_queries, capacity;
    u32 every;       // keep all codes, each in its own place; those that take no part with a center of -inf
    u32* counts;     // one per query
    u32* positions;  // (n_queries, capacity)
    float* centers;  // likewise
};

// At least the score of a code whose sum is at most `sum`: each operation is monotone. `lower` is the other side.
__device__ __forceinline__ float upper(float center, float margin, float weight, float bias) {
    const float sum = center + (weight < 0 ? -margin : margin);
    return __fadd_ru(sum * weight, bias);
}
__device__ __forceinline__ float lower(float center, float margin, float weight, float bias) {
    const float sum = center - (weight < 0 ? -margin : margin);
    return __fadd_rd(sum * weight, bias);
}

__device__ __forceinline__ void keep(const Candidates& to, u32 query, u32 code, float center) {
    const bool dead = to.alive && !get_bit(to.alive, code);
    if (dead && !to.every) return;
    const u32 slot = to.every ? code : atomicAdd(&to.counts[query], 1u);
    if (slot < to.capacity) {
        to.positions[u64(query) * to.capacity + slot] = to.base + code;
        to.centers[u64(query) * to.capacity + slot] = dead ? NOTHING : center;
    }
}

__device__ __forceinline__ void offer(const Candidates& to, u32 query, u32 code, float center, float weight, float bias) {
    if (to.every || upper(center, to.margins[query], weight, bias) > to.bars[query]) keep(to, query, code, center);
}

#define CANDIDATE_PARAMETERS                                                                                     \
    const float *steps, const float *margins, const float *bars, const float *weights, const float *biases,      \
        const u32 *alive, u32 base, u32 n_codes, u32 n_queries, u32 capacity, u32 every, u32 *counts,             \
        u32 *positions, float *centers
#define CANDIDATES                                                                                               \
    Candidates { steps, margins, bars, weights, biases, alive, base, n_codes, n_queries, capacity, every, counts, \
                 positions, centers }

// Integer sums of the digits of a query, most significant first, as one number.
#define RADIX 254
__device__ __forceinline__ float center_of(const int* sums, float step) {
    if (DIGITS == 1) return step * float(sums[0]);
    double whole = sums[0];
#pragma unroll
    for (int d = 1; d < DIGITS; ++d) whole = whole * RADIX + sums[d];
    return float(whole * double(step));
}
