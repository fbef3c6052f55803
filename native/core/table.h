// Memory for look-up tables, on huge pages if the system has them, because accesses are random.
#pragma once

#include <cstdlib>
#include <new>

#include "bits.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace topsign {

class Table {
   public:
    explicit Table(int64_t n_bytes) {
        constexpr int64_t kPage = int64_t(1) << 21;
#if defined(__linux__)
        const int64_t size = ceil_div(n_bytes, kPage) * kPage;
        memory_ = std::aligned_alloc(kPage, size_t(size));
        if (!memory_) throw std::bad_alloc();
        madvise(memory_, size_t(size), MADV_HUGEPAGE);  // a hint: failure only costs speed
        bytes_ = static_cast<uint8_t*>(memory_);
#else
        (void)kPage;
        memory_ = std::malloc(size_t(n_bytes) + 64);
        if (!memory_) throw std::bad_alloc();
        bytes_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory_) + 63) / 64 * 64);
#endif
        std::memset(bytes_, 0, size_t(n_bytes));
    }
    ~Table() { std::free(memory_); }
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    uint8_t* bytes() { return bytes_; }
    const uint8_t* bytes() const { return bytes_; }
    uint64_t* words() { return reinterpret_cast<uint64_t*>(bytes_); }

   private:
    void* memory_;
    uint8_t* bytes_;
};

}  // namespace topsign
