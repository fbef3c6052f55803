// Parallel loops on one thread pool per process; its threads sleep between calls.
//
// A call uses one thread per grain of work, up to its limit. The calling thread takes part and finishes any work that
// the pool has not started, so concurrent calls share the pool without waiting for each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

namespace topsign {

extern std::atomic<double> grain;  // nanoseconds of work per thread; waking a thread takes 5 to 100 us

// Number of threads to use for this much work, at most n_threads.
inline int worthwhile_threads(int n_threads, double nanoseconds) {
    return int(std::max(1.0, std::min(double(n_threads), nanoseconds / grain)));
}

// Calls body(slot) once for each slot in [0, n) on free threads of the pool and on this one. The first exception is
// rethrown after all slots have finished.
void run_slots(int n, const std::function<void(int)>& body);

// Calls body(begin, end) for parts of [0, n); nanoseconds_each is the approximate cost per item.
template <class Body>
void parallel_for(int n_threads, int64_t n, double nanoseconds_each, const Body& body) {
    const int64_t n_slots = std::min<int64_t>(n, worthwhile_threads(n_threads, nanoseconds_each * double(n)));
    if (n_slots <= 1) {
        if (n > 0) body(0, n);
        return;
    }
    const int64_t n_parts = std::min(n, 4 * n_slots);  // more parts than threads, because some threads are slower
    std::atomic<int64_t> next{0};
    run_slots(int(n_slots), [&](int) {
        for (int64_t part; (part = next.fetch_add(1)) < n_parts;) body(n * part / n_parts, n * (part + 1) / n_parts);
    });
}

// Calls body(item) for each item of [0, n), where each thread's body is made by start(). nanoseconds_each is the
// approximate cost per item.
template <class Start>
void parallel_items(int n_threads, int64_t n, double nanoseconds_each, const Start& start) {
    const int64_t n_slots = std::min<int64_t>(n, worthwhile_threads(n_threads, nanoseconds_each * double(n)));
    if (n_slots <= 0) return;
    std::atomic<int64_t> next{0};
    run_slots(int(n_slots), [&](int) {
        auto body = start();
        for (int64_t item; (item = next.fetch_add(1)) < n;) body(item);
    });
}

}  // namespace topsign
