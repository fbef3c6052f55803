// Work shared among threads: one pool for the whole process, whose threads sleep between calls.
//
// A call takes as many threads as its work has grains worth waking one for. Its own thread is one of them and finishes
// whatever the pool does not take up, so that calls from several threads share the pool and none waits for another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

namespace topsign {

extern std::atomic<double> grain;  // nanoseconds of work worth a thread: waking one takes 5 to 100 thousand

// How many of the threads allowed are worth using for so much work.
inline int worthwhile_threads(int n_threads, double nanoseconds) {
    return int(std::max(1.0, std::min(double(n_threads), nanoseconds / grain)));
}

// Calls body(slot) once for each slot in [0, n), on as many threads as are free; slot 0 on this one. The first
// exception of any is rethrown once all have ended.
void run_slots(int n, const std::function<void(int)>& body);

// Calls body(begin, end) over [0, n), with the approximate nanoseconds per item.
template <class Body>
void parallel_for(int n_threads, int64_t n, double nanoseconds_each, const Body& body) {
    const int64_t n_slots = std::min<int64_t>(n, worthwhile_threads(n_threads, nanoseconds_each * double(n)));
    if (n_slots <= 1) {
        if (n > 0) body(0, n);
        return;
    }
    const int64_t n_parts = std::min(n, 4 * n_slots);  // more than threads: some threads are slower than others
    std::atomic<int64_t> next{0};
    run_slots(int(n_slots), [&](int) {
        for (int64_t part; (part = next.fetch_add(1)) < n_parts;) body(n * part / n_parts, n * (part + 1) / n_parts);
    });
}

// Calls a function of each thread for single items of [0, n), with the approximate nanoseconds per item; start() makes
// the functions.
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
