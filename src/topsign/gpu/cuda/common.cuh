// Definitions that all kernels share: the layout of codes, ordered numbers, and the candidates of a scan.
//
// Codes are interleaved in groups of 32, one per lane of a warp: word j of the code of a lane is at [group][j][lane], so
// that accesses of lanes that read their codes in step coalesce. codes.cuh describes the CODE_WORDS words of adaptive
// codes, trellis.cuh those of trellis codes (TRELLIS 1).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define NOTHING (-INFINITE)
#define GROUP 32

#ifndef TRELLIS
#define TRELLIS 0
#endif
#if TRELLIS
#define CODE_WORDS ((RING_BITS + WINDOW - 1 + 31) / 32)
#else
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
#endif

#ifdef EMULATED
using emulated::dynamic_shared;
#else
extern __shared__ __align__(1024) unsigned char dynamic_shared[];
#endif

// Asynchronous copies of 16 bytes to shared memory.
#ifndef EMULATED
__device__ __forceinline__ u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Adds the tensor-core product of 16 rows and 8 columns, 32 bytes deep, to sums.
__device__ __forceinline__ void multiply(int (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// The code at a position; its words are GROUP apart.
__device__ __forceinline__ const u32* code_at(const u32* stripes, u64 position) {
    return stripes + position / GROUP * (u64(CODE_WORDS) * GROUP) + position % GROUP;
}

// Floats and doubles as integers in the same order.
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

// The next lower float, or NOTHING for NOTHING. Below 0 it is a normal number, because -0 is not less than 0.
__device__ __forceinline__ float next_below(float value) {
    if (value == 0.0f) return -1.17549435e-38f;
    const u32 key = ordered(value) - 1;
    return value == NOTHING ? value : __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The maximum over all threads of a block.
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

// Candidates of a scan. The center of a query and a code is step * (integer sum); the sum of unrounded values lies within
// `margin` of it. Codes that may score above the bar of a query become candidates.
struct Candidates {
    const float *steps, *margins, *bars;  // one per query; for trellis codes, constants follow the steps
    const float *weights, *biases;        // one per code, or null
    const u32* alive;                     // bitmap of the codes that are alive, or null
    u32 base;                             // position of the first code
    u32 n_codes, n_queries, capacity;
    u32 every;       // keep all codes, each in its own slot; centers of removed codes are -inf
    u32* counts;     // one per query
    u32* positions;  // (n_queries, capacity)
    float* centers;  // likewise
};

// Upper and lower bounds of the score of a code; each operation is monotone.
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

// Combines the integer sums of a query's digits, most significant first. Trellis codes add the query's constant; their
// sums are exact, and a second digit has FINE_BITS bits.
#define RADIX 254
#ifndef FINE_BITS
#define FINE_BITS 0
#endif
__device__ __forceinline__ float center_of(const int* sums, float step, float constant = 0) {
    if (TRELLIS) return step * float(FINE_BITS ? sums[0] * (1 << FINE_BITS) + sums[FINE_BITS ? 1 : 0] : sums[0]) + constant;
    if (DIGITS == 1) return step * float(sums[0]);
    double whole = sums[0];
#pragma unroll
    for (int d = 1; d < DIGITS; ++d) whole = whole * RADIX + sums[d];
    return float(whole * double(step));
}
