// Cache lines: aligned memory, and prefetches.
#pragma once

#include <cstdint>
#include <vector>

#include "target.h"

namespace topsign {

// Prefetches the cache line of an address.
TOPSIGN_INLINE void prefetch_line(const void* at) {
#if defined(__GNUC__)
    __builtin_prefetch(at);
#else
    (void)at;
#endif
}

// Zero-initialised array aligned to a cache line, because loads that cross lines are slow.
template <class T>
class Lines {
   public:
    Lines() = default;
    explicit Lines(int64_t size) : memory_(size_t(size) + 64 / sizeof(T)) {
        first_ = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64 / sizeof(T);
    }
    T* data() { return memory_.data() + first_; }
    const T* data() const { return memory_.data() + first_; }
    T& operator[](int64_t i) { return data()[i]; }
    const T& operator[](int64_t i) const { return data()[i]; }

    // Resizes and discards the content.
    void fit(int64_t size) {
        if (memory_.size() < size_t(size) + 64 / sizeof(T)) *this = Lines(size);
    }

   private:
    std::vector<T> memory_;
    size_t first_ = 0;
};

}  // namespace topsign
