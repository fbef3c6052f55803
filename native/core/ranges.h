// Ranges of codes that are searched together; threads take pieces of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "../topsign.h"
#include "bits.h"

namespace topsign {

// The first `count` codes of an array.
struct Range {
    int64_t count = 0;
    const int64_t* ids = nullptr;  // by position, ascending; null: rows
    int64_t first_row = 0;
    const int64_t* rows = nullptr;  // by position; null: from first_row on
    const int64_t* const* id_places =
        nullptr;  // by position; ids are read through them, only for entries that are found

    int64_t row(int64_t position) const { return rows ? rows[position] : first_row + position; }
    int64_t id(int64_t position) const {
        if (id_places) return *id_places[position];
        return ids ? ids[position] : row(position);
    }
};

// List of ranges; codes are numbered consecutively across ranges.
class Ranges {
   public:
    // `in_order` says whether the codes of the range are offered by ascending position.
    void add(const Range& range, bool in_order = true) {
        ranges_.push_back(range);
        starts_.push_back(starts_.back() + range.count);
        in_order_ = in_order_ && in_order;
    }

    int64_t n_codes() const { return starts_.back(); }
    const Range& operator[](int64_t number) const { return ranges_[number]; }

    // Whether codes are offered by ascending id, also from range to range.
    bool ascending() const {
        if (!in_order_) return false;
        const Range* before = nullptr;
        for (const Range& range : ranges_) {
            if (range.count == 0) continue;
            if (before && range.id(0) <= before->id(before->count - 1)) return false;
            before = &range;
        }
        return true;
    }

    // Calls visit(number, begin, end) for each range that intersects the codes [begin, end).
    template <class Visit>
    void visit(int64_t begin, int64_t end, const Visit& visit) const {
        int64_t number = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
        for (; begin < end; ++number) {
            const int64_t start = starts_[number], stop = std::min(end, starts_[number + 1]);
            if (begin < stop) visit(number, begin - start, stop - start);
            begin = stop;
        }
    }

   private:
    std::vector<Range> ranges_{};
    std::vector<int64_t> starts_{0};
    bool in_order_ = true;
};

struct CodeRanges : ts_code_ranges {
    explicit CodeRanges(const ts_code_ranges& all) : ts_code_ranges(all) {}

    const ts_layout& layout() const { return ranges[0].layout; }

    Ranges all() const {
        Ranges all;
        for (int64_t i = 0; i < count; ++i) all.add({ranges[i].count, ranges[i].ids, ranges[i].first_row});
        return all;
    }
};

// Hands out pieces of work that become smaller towards the end, so that threads finish together. Pieces have at least
// `least` codes except the last one, but never so many that a thread gets none.
class Pieces {
   public:
    Pieces(int64_t n_codes, int n_slots, int64_t least)
        : n_codes_(n_codes),
          n_slots_(n_slots),
          least_(n_slots == 1 ? n_codes : std::min(least, ceil_div(n_codes, n_slots))) {}

    bool take(int64_t& begin, int64_t& end) {
        begin = next_.load(std::memory_order_relaxed);
        do {
            if (begin >= n_codes_) return false;
            const int64_t share = (n_codes_ - begin) / (2 * n_slots_);
            end = std::min(begin + std::max({share, least_, int64_t(1)}), n_codes_);
        } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
        return true;
    }

   private:
    const int64_t n_codes_, n_slots_, least_;
    std::atomic<int64_t> next_{0};
};

}  // namespace topsign
