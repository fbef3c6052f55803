// Definitions that all kernels share.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define NOTHING (-INFINITE)

#ifdef EMULATED
using emulated::dynamic_shared;
#else
extern __shared__ __align__(1024) unsigned char dynamic_shared[];

// Asynchronous copies of 16 bytes to shared memory.
__device__ __forceinline__ u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

// Doubles as integers in the same order.
__device__ __forceinline__ u64 ordered(double value) {
    const u64 bits = u64(__double_as_longlong(value));
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ double from_ordered(u64 key) {
    return __longlong_as_double((long long)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

// Reduces one value per thread of a block by an associative and commutative function.
template <class T, class Fold>
__device__ __forceinline__ T block_fold(T value, const Fold& fold) {
    __shared__ T parts[32];
    for (int d = 16; d; d >>= 1) value = fold(value, __shfl_xor_sync(ALL, value, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (u32 w = 1; w < blockDim.x / 32; ++w) value = fold(value, parts[w]);
    return value;
}

// Sums in double precision, term i in lane i mod 16, lanes folded in half; half a warp per sum.
template <class Term>
__device__ __forceinline__ double lane_sum(u32 n, const Term& term) {
    const u32 lane = threadIdx.x % 32;
    double sum = 0;
    if (lane < 16)
        for (u32 i = lane; i < n; i += 16) sum += term(i);
    for (int half = 8; half > 0; half /= 2) sum += __shfl_down_sync(ALL, sum, half);
    return sum;
}
