// What every kernel shares: threads, run-time paths, small bit operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "topsign.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TOPSIGN_GENERIC)
#define TOPSIGN_X86 1
#include <immintrin.h>
// Compiled for AVX2 whatever the build's target; called only where ts_supports(kAvx2).
#define TOPSIGN_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define TOPSIGN_AVX2_INLINE TOPSIGN_AVX2 __attribute__((always_inline)) inline
#else
#define TOPSIGN_X86 0
#endif

namespace topsign {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int count_trailing_zeros(uint64_t word) {
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int n = 0;
    for (; !(word & 1); word >>= 1) ++n;
    return n;
#endif
}

inline int count_ones(uint64_t word) {
#if defined(__GNUC__)
    return __builtin_popcountll(word);
#else
    int n = 0;
    for (; word; word &= word - 1) ++n;
    return n;
#endif
}

inline bool get_bit(const uint8_t* bits, int64_t i) { return bits[i >> 3] >> (i & 7) & 1; }
inline void set_bit(uint8_t* bits, int64_t i) { bits[i >> 3] |= uint8_t(1u << (i & 7)); }

// Calls body(begin, end) over [0, n) on up to n_threads threads; the caller's thread is one of them.
// The first exception of any thread is rethrown once all have ended.
template <class Body>
void parallel_for(int n_threads, int64_t n, const Body& body) {
    const int64_t n_parts = std::max<int64_t>(1, std::min<int64_t>(n_threads, n));
    std::vector<std::exception_ptr> errors(n_parts);
    const auto part = [&](int64_t i) {
        try {
            body(n * i / n_parts, n * (i + 1) / n_parts);
        } catch (...) {
            errors[i] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(n_parts - 1);
    int64_t started = 1;
    try {
        for (; started < n_parts; ++started) threads.emplace_back(part, started);
    } catch (const std::system_error&) {
        // The system gives no more threads: the parts left over run here.
    }
    part(0);
    for (int64_t i = started; i < n_parts; ++i) part(i);
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors)
        if (error) std::rethrow_exception(error);
}

// Turns an allocation failure into the status that crosses the C interface.
template <class Body>
int guarded(const Body& body) {
    try {
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

// Sums of real values have one order on every path: term i goes to lane i mod 16, in double precision,
// and the lanes are folded in half until one is left.
struct LaneSum {
    static constexpr int kLanes = 16;
    double lane[kLanes] = {};
    void add(int64_t i, double value) { lane[i % kLanes] += value; }
    double total() {
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
        return lane[0];
    }
};

}  // namespace topsign
