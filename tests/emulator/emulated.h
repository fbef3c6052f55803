// CUDA kernels run by an ordinary processor, for tests where there is no card: every thread of a block is a fibre, and
// barriers and exchanges within a warp are points where fibres take turns, in an order that changes, so that a missing
// barrier shows. Slow, and exact in integers and IEEE floats.
#pragma once
#define EMULATED 1

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct dim3 { unsigned x = 1, y = 1, z = 1; };
static dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace emulated {

alignas(16) static unsigned char dynamic_shared[256 * 1024];

// A fibre begins by its context, and goes on by jumps: those make no system calls.
struct Fibre {
    ucontext_t context;
    jmp_buf place;
    bool begun = false;
    std::vector<char> stack;
    dim3 index;
    bool done = false;
    long barrier = 0, warp_barrier = 0;
    unsigned char slot[64];
};

static std::vector<Fibre> fibres;
static jmp_buf scheduler;
static unsigned current;
static unsigned order = 1;  // of turns: who is first, and whether the next or the last one follows

inline void yield() {
    if (!_setjmp(fibres[current].place)) _longjmp(scheduler, 1);
}

// Runs a fibre until it yields or ends.
inline void go_on(unsigned number) {
    Fibre& fibre = fibres[number];
    current = number;
    threadIdx = fibre.index;
    if (_setjmp(scheduler)) return;
    if (fibre.begun) _longjmp(fibre.place, 1);
    fibre.begun = true;
    setcontext(&fibre.context);
}

// Waits until all fibres of [begin, end) that still run have reached the same number of barriers.
inline void meet(unsigned begin, unsigned end, long Fibre::*count) {
    Fibre& self = fibres[current];
    const long mine = ++(self.*count);
    for (;;) {
        bool all = true;
        for (unsigned i = begin; i < end; ++i) all = all && (fibres[i].done || fibres[i].*count >= mine);
        if (all) return;
        yield();
    }
}
inline unsigned warp_begin() { return current / 32 * 32; }
inline unsigned warp_end() { return std::min<unsigned>(warp_begin() + 32, fibres.size()); }
inline void meet_warp() { meet(warp_begin(), warp_end(), &Fibre::warp_barrier); }

// Every lane shows a value; `read` sees those of all.
template <class T, class Read>
auto exchange(const T& value, const Read& read) {
    static_assert(sizeof(T) <= 64);
    std::memcpy(fibres[current].slot, &value, sizeof value);
    meet_warp();
    const unsigned first = warp_begin();
    const auto result = read([first](unsigned lane) {
        T other;
        std::memcpy(&other, fibres[std::min<size_t>(first + lane, fibres.size() - 1)].slot, sizeof other);
        return other;
    });
    meet_warp();
    return result;
}
inline unsigned lane() { return current % 32; }

static void (*body)(void*);
static void* arguments;
static void enter() {
    body(arguments);
    fibres[current].done = true;
    _longjmp(scheduler, 1);
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(args[I])...);
}

template <class... A>
void launch(void (*kernel)(A...), unsigned grid_x, unsigned grid_y, unsigned block, void** args) {
    gridDim = {grid_x, grid_y, 1};
    blockDim = {block, 1, 1};
    auto run = [&] { call(kernel, args, std::index_sequence_for<A...>{}); };
    arguments = &run;
    body = [](void* p) { (*static_cast<decltype(run)*>(p))(); };
    if (fibres.size() != block) {
        fibres.clear();
        fibres.resize(block);
        for (auto& fibre : fibres) fibre.stack.resize(64 * 1024);
    }
    for (unsigned by = 0; by < grid_y; ++by)
        for (unsigned bx = 0; bx < grid_x; ++bx) {
            blockIdx = {bx, by, 0};
            std::memset(dynamic_shared, 0xab, sizeof dynamic_shared);  // nothing is left of the block before
            for (unsigned i = 0; i < block; ++i) {
                Fibre& fibre = fibres[i];
                fibre.index = {i, 0, 0};
                fibre.done = fibre.begun = false;
                fibre.barrier = fibre.warp_barrier = 0;
                getcontext(&fibre.context);
                fibre.context.uc_stack.ss_sp = fibre.stack.data();
                fibre.context.uc_stack.ss_size = fibre.stack.size();
                makecontext(&fibre.context, enter, 0);
            }
            for (bool left = true; left;) {
                left = false;
                order = order * 1664525u + 1013904223u;
                const unsigned first = (order >> 8) % block;
                for (unsigned n = 0; n < block; ++n) {
                    const unsigned i = (first + (order >> 31 ? block - n : n)) % block;
                    if (fibres[i].done) continue;
                    go_on(i);
                    left = left || !fibres[i].done;
                }
            }
        }
}

}  // namespace emulated

inline void __syncthreads() { emulated::meet(0, emulated::fibres.size(), &emulated::Fibre::barrier); }
inline void __syncwarp(unsigned = ~0u) { emulated::meet_warp(); }
template <class T> T __shfl_sync(unsigned, T v, unsigned from) { return emulated::exchange(v, [&](auto at) { return at(from % 32); }); }
template <class T> T __shfl_xor_sync(unsigned, T v, unsigned d) { return emulated::exchange(v, [&](auto at) { return at(emulated::lane() ^ d); }); }
template <class T> T __shfl_up_sync(unsigned, T v, unsigned d) {
    return emulated::exchange(v, [&](auto at) { return emulated::lane() >= d ? at(emulated::lane() - d) : v; });
}
template <class T> T __shfl_down_sync(unsigned, T v, unsigned d) {
    return emulated::exchange(v, [&](auto at) { return emulated::lane() + d < 32 ? at(emulated::lane() + d) : v; });
}
inline unsigned __ballot_sync(unsigned, bool v) {
    return emulated::exchange(v, [](auto at) { unsigned all = 0; for (unsigned i = 0; i < 32; ++i) all |= unsigned(at(i)) << i; return all; });
}

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(unsigned v) { return __builtin_ffs(int(v)); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t both = uint64_t(y) << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= unsigned(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return out;
}
template <class To, class From> To same_bits(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float v) { return same_bits<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return same_bits<float>(v); }
inline float __int_as_float(int v) { return same_bits<float>(v); }
inline long long __double_as_longlong(double v) { return same_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return same_bits<double>(v); }

// The nearest float on one side of a double.
inline float __double2float_ru(double v) { float f = float(v); return double(f) < v ? std::nextafterf(f, INFINITY) : f; }
inline float __double2float_rd(double v) { float f = float(v); return double(f) > v ? std::nextafterf(f, -INFINITY) : f; }
inline float __fadd_ru(float a, float b) { return __double2float_ru(double(a) + double(b)); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class T> T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }
template <class T> T atomicOr(T* p, T v) { T old = *p; *p |= v; return old; }
template <class T> T __ldg(const T* p) { return *p; }
inline void __threadfence() {}
using std::isfinite;
using std::max;
using std::min;

// The tensor cores and the copies of product.cu.
inline void load_matrices(unsigned (&out)[4], const void* row) {
    const auto rows = emulated::exchange(row, [&](auto at) {
        std::vector<const void*> all;
        for (unsigned i = 0; i < 32; ++i) all.push_back(at(i));
        return all;
    });
    for (unsigned m = 0; m < 4; ++m)
        std::memcpy(&out[m], static_cast<const char*>(rows[m * 8 + emulated::lane() / 4]) + emulated::lane() % 4 * 4, 4);
}
inline void multiply(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct Fragment { unsigned a[4], b[2]; };
    const Fragment mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulated::exchange(mine, [&](auto at) {
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = emulated::lane() / 4 + i / 2 * 8, column = emulated::lane() % 4 * 2 + i % 2;
            for (unsigned k = 0; k < 32; ++k) {
                const Fragment left = at(row % 8 * 4 + k % 16 / 4), right = at(column * 4 + k % 16 / 4);
                const auto value = static_cast<signed char>(left.a[row / 8 + k / 16 * 2] >> k % 4 * 8);
                sums[i] += value * static_cast<signed char>(right.b[k / 16] >> k % 4 * 8);
            }
        }
        return 0;
    });
}
inline void copy_async(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void commit_copies() {}
template <int LEFT> void wait_copies() {}
