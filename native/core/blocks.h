// Codes in blocks of 32, and ranges of them that are searched together; threads take pieces of blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "../topsign.h"
#include "bits.h"

namespace topsign {

constexpr int64_t kBlock = 32;  // codes

inline int64_t n_blocks(const ts_codes& codes) { return ceil_div(codes.count, kBlock); }
inline int64_t row_of(const ts_codes& codes, int64_t position) { return codes.first_row + position; }
inline int64_t id_of(const ts_codes& codes, int64_t position) {
    return codes.ids ? codes.ids[position] : row_of(codes, position);
}

// The codes of a block that exist and are alive, a bit for each.
inline uint32_t living(const ts_codes& codes, int64_t block) {
    const int64_t left = codes.count - block * kBlock;
    uint32_t mask = left >= kBlock ? ~uint32_t(0) : (uint32_t(1) << left) - 1;
    if (codes.alive) {
        uint32_t alive = 0;
        std::memcpy(&alive, codes.alive + block * 4, size_t(std::min<int64_t>(4, ceil_div(left, 8))));
        mask &= alive;
    }
    return mask;
}

// Copies the first n bytes of a code out of its block.
inline void read_code(const uint8_t* block, int lane, int64_t n, uint8_t* out) {
    for (int64_t p = 0; p < n; ++p) out[p] = block[p * kBlock + lane];
}

// Ranges of codes, whose blocks are numbered consecutively.
class BlockRanges {
   public:
    explicit BlockRanges(const ts_code_ranges& codes) : codes_(codes) {
        for (int64_t i = 0; i < codes.count; ++i) starts_.push_back(starts_.back() + n_blocks(codes.ranges[i]));
    }

    int64_t count() const { return starts_.back(); }

    // Whether codes have ascending ids, also from range to range.
    bool ascending() const {
        const ts_codes* before = nullptr;
        for (const ts_codes* one = codes_.ranges; one != codes_.ranges + codes_.count; ++one) {
            if (one->count == 0) continue;
            if (!one->ascending) return false;
            if (before && id_of(*one, 0) <= id_of(*before, before->count - 1)) return false;
            before = one;
        }
        return true;
    }

    // Calls visit(codes, begin, end) for each range that has some of the blocks [begin, end).
    template <class Visit>
    void visit(int64_t begin, int64_t end, const Visit& visit) const {
        int64_t number = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
        for (; begin < end; ++number) {
            const int64_t start = starts_[number], stop = std::min(end, starts_[number + 1]);
            if (begin < stop) visit(codes_.ranges[number], begin - start, stop - start);
            begin = stop;
        }
    }

   private:
    const ts_code_ranges codes_;
    std::vector<int64_t> starts_{0};
};

// Hands out pieces of work that become smaller towards the end, so that threads finish together. Pieces have at least
// `least` items except the last one, but never so many that a thread gets none.
class Pieces {
   public:
    Pieces(int64_t n, int n_slots, int64_t least)
        : n_(n), n_slots_(n_slots), least_(n_slots == 1 ? n : std::min(least, ceil_div(n, n_slots))) {}

    bool take(int64_t& begin, int64_t& end) {
        begin = next_.load(std::memory_order_relaxed);
        do {
            if (begin >= n_) return false;
            const int64_t share = (n_ - begin) / (2 * n_slots_);
            end = std::min(begin + std::max({share, least_, int64_t(1)}), n_);
        } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
        return true;
    }

   private:
    const int64_t n_, n_slots_, least_;
    std::atomic<int64_t> next_{0};
};

}  // namespace topsign
