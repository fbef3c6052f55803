// Work shared among threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace topsign {

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

}  // namespace topsign
