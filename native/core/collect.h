// What a scan keeps: the k best codes of each query, or every code below a bound.
//
// Codes are offered with a key of which less is better; of equal keys the lower id wins. Scans test `key < bound` and
// no more.
#pragma once

#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "ranges.h"
#include "threads.h"

namespace topsign {

// The least key that is too high, of those that equal `key` and are below it.
inline int32_t just_above(int32_t key) { return key == INT32_MAX ? key : key + 1; }
inline float just_above(float key) { return std::nextafter(key, std::numeric_limits<float>::infinity()); }

template <class Key>
struct Kept {
    Key key;
    int64_t id, row;  // equal keys are ordered by id
    bool operator<(const Kept& other) const { return key != other.key ? key < other.key : id < other.id; }
};

// The k best codes of a query, shared by all threads and ranges of a search.
template <class Key>
class alignas(64) Top {
   public:
    explicit Top(int64_t k) : k_(k) {}

    // Ids may be offered in any order. Otherwise they ascend, and a key equal to that of a full list's worst cannot
    // enter.
    void unordered() { ordered_ = false; }

    Key bound() const { return bound_.load(std::memory_order_relaxed); }
    int64_t wanted() const { return k_; }

    void offer(const Kept<Key>& code) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (int64_t(heap_.size()) == k_) {
            if (!(code < heap_.front())) return;
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.back() = code;
        } else {
            heap_.push_back(code);
        }
        std::push_heap(heap_.begin(), heap_.end());
        const Key worst = heap_.front().key;
        if (int64_t(heap_.size()) == k_) bound_.store(ordered_ ? worst : just_above(worst), std::memory_order_relaxed);
    }

    // Keys and rows in order, k of them, row -1 where there are fewer.
    void write(Key* keys, int64_t* rows) {
        std::sort(heap_.begin(), heap_.end());
        for (int64_t i = 0; i < k_; ++i) {
            const bool found = i < int64_t(heap_.size());
            if (found) keys[i] = heap_[i].key;
            rows[i] = found ? heap_[i].row : -1;
        }
    }

   private:
    std::atomic<Key> bound_{std::numeric_limits<Key>::max()};
    const int64_t k_;
    bool ordered_ = true;
    std::mutex mutex_{};
    std::vector<Kept<Key>> heap_{};  // the worst kept is at the front
};

// What a thread offers to a query's top.
template <class Key>
class Best {
   public:
    explicit Best(Top<Key>& top) : top_(&top) {}
    void unordered() { top_->unordered(); }
    void follow(const Range& range) { range_ = &range; }
    Key bound() const { return top_->bound(); }
    int64_t wanted() const { return top_->wanted(); }
    void offer(Key key, int64_t position) { top_->offer({key, range_->id(position), range_->row(position)}); }

   private:
    Top<Key>* top_;
    const Range* range_ = nullptr;  // that the thread scans now
};

// The tops of a batch of queries.
template <class Key>
class Tops {
   public:
    Tops(int64_t n_queries, int64_t k) : k_(k) {
        for (int64_t q = 0; q < n_queries; ++q) tops_.emplace_back(k);
    }

    std::vector<Best<Key>> collectors() { return {tops_.begin(), tops_.end()}; }

    // (n_queries, k)
    void write(Key* keys, int64_t* rows) {
        for (auto& top : tops_) {
            top.write(keys, rows);
            keys += k_;
            rows += k_;
        }
    }

   private:
    int64_t k_;
    std::deque<Top<Key>> tops_{};
};

template <class Key>
class Within {
   public:
    explicit Within(Key bound) : bound_(bound) {}
    void unordered() {}
    void follow(const Range& range) { range_ = &range; }
    Key bound() const { return bound_; }
    int64_t wanted() const { return std::numeric_limits<int64_t>::max(); }
    void offer(Key key, int64_t position) { found_.emplace_back(key, range_->row(position)); }
    const std::vector<std::pair<Key, int64_t>>& found() const { return found_; }

   private:
    Key bound_;
    const Range* range_ = nullptr;
    std::vector<std::pair<Key, int64_t>> found_{};
};

// What the threads of a scan have found, one collector per query for each.
template <class Collector>
using Parts = std::vector<std::vector<Collector>>;

// Scans all codes, each taking about so many nanoseconds, those of a group together as far as threads allow. Each
// thread calls start() once, and the function that this returns with (range number, begin, end, collectors);
// collectors start as copies of `empty`.
template <class Collector, class Start>
Parts<Collector> scan_ranges(int n_threads, const Ranges& ranges, double nanoseconds_each,
                             const std::vector<Collector>& empty, const Start& start, int64_t group = 1) {
    const int n_slots = worthwhile_threads(n_threads, nanoseconds_each * double(ranges.n_codes()));
    Parts<Collector> parts(n_slots, empty);
    if (n_slots > 1 || !ranges.ascending())
        for (auto& collector : parts[0]) collector.unordered();
    Pieces pieces(ranges.n_codes(), n_slots, std::max(group, int64_t(8 * grain / nanoseconds_each) + 1));
    run_slots(n_slots, [&](int slot) {
        auto scan = start();
        Range here;
        for (auto& collector : parts[slot]) collector.follow(here);
        for (int64_t first, last; pieces.take(first, last);)
            ranges.visit(first, last, [&](int64_t number, int64_t begin, int64_t end) {
                here = ranges[number];
                scan(number, begin, end, parts[slot].data());
            });
    });
    return parts;
}

// The same with scan(codes, begin, end, collectors).
template <class Collector, class Scan>
Parts<Collector> scan_parts(int n_threads, const CodeRanges& codes, double nanoseconds_each,
                            const std::vector<Collector>& empty, const Scan& scan, int64_t group = 1) {
    const auto start = [&] {
        return [&](int64_t number, int64_t begin, int64_t end, Collector* best) {
            scan(codes.ranges[number], begin, end, best);
        };
    };
    return scan_ranges(n_threads, codes.all(), nanoseconds_each, empty, start, group);
}

// All codes found, by ascending row, appended for each query; counts how many each query has.
template <class Key>
void write_within(const Parts<Within<Key>>& parts, int64_t first_query, int64_t capacity, int64_t& total, Key* keys,
                  int64_t* rows, int64_t* counts) {
    std::vector<std::pair<int64_t, Key>> all;
    for (size_t q = 0; q < parts[0].size(); ++q) {
        all.clear();
        for (const auto& part : parts)
            for (const auto& [key, row] : part[q].found()) all.emplace_back(row, key);
        if (!std::is_sorted(all.begin(), all.end())) std::sort(all.begin(), all.end());
        for (const auto& [row, key] : all) {
            if (total < capacity) {
                keys[total] = key;
                rows[total] = row;
            }
            ++total;
        }
        counts[first_query + int64_t(q)] = int64_t(all.size());
    }
}

}  // namespace topsign
