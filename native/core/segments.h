// Codes in several segments, searched together: positions count through them, and threads take pieces of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "../topsign.h"
#include "bits.h"

namespace topsign {

// Where the codes of each segment start, and their ids, which ascend, or null.
struct Ranges {
    std::vector<int64_t> starts{0};
    std::vector<const int64_t*> ids{};

    void add(int64_t count, const int64_t* of_segment) {
        starts.push_back(starts.back() + count);
        ids.push_back(of_segment);
    }

    // Whether ids ascend from segment to segment, too.
    bool ascending() const {
        int64_t last = INT64_MIN;
        for (size_t i = 0; i < ids.size(); ++i) {
            const int64_t count = starts[i + 1] - starts[i];
            if (!ids[i] || count == 0) continue;
            if (ids[i][0] <= last) return false;
            last = ids[i][count - 1];
        }
        return true;
    }
};

struct Segments : ts_segments {
    explicit Segments(const ts_segments& all) : ts_segments(all) {}

    const ts_layout& layout() const { return codes[0].layout; }

    Ranges ranges() const {
        Ranges all;
        for (int64_t i = 0; i < count; ++i) all.add(codes[i].count, codes[i].ids);
        return all;
    }
};

struct Piece {
    int64_t range, begin, end;
};

// Hands out all codes, fewer at a time as the end comes near, so that threads end together; never fewer than `least`
// but for the last of a range, nor so many that a thread goes without.
class Pieces {
   public:
    Pieces(const Ranges& ranges, int n_slots, int64_t least)
        : starts_(ranges.starts),
          n_slots_(n_slots),
          least_(n_slots == 1 ? starts_.back() : std::min(least, ceil_div(starts_.back(), n_slots))) {}

    bool take(Piece& piece) {
        int64_t begin = next_.load(std::memory_order_relaxed), end;
        do {
            if (begin >= starts_.back()) return false;
            piece.range = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
            const int64_t share = (starts_.back() - begin) / (2 * n_slots_);
            end = std::min(begin + std::max({share, least_, int64_t(1)}), starts_[piece.range + 1]);
        } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
        piece.begin = begin - starts_[piece.range];
        piece.end = end - starts_[piece.range];
        return true;
    }

   private:
    const std::vector<int64_t>& starts_;
    const int64_t n_slots_, least_;
    std::atomic<int64_t> next_{0};
};

}  // namespace topsign
