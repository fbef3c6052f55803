// What a scan keeps: the k best codes of each query, or every code below a bound.
//
// Codes are offered in ascending order of position to each collector, with a key of which less is better. A key equal
// to the bound of a full list cannot enter: its position is higher. So scans test `key < bound` and no more.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bits.h"
#include "threads.h"

namespace topsign {

// The least key that is too high, of those that equal `key` and are below it.
inline int32_t just_above(int32_t key) { return key == INT32_MAX ? key : key + 1; }
inline float just_above(float key) { return std::nextafter(key, std::numeric_limits<float>::infinity()); }

template <class Key>
class Best {
   public:
    explicit Best(int64_t k) : k_(k) {}

    // From now on keys that other threads have found to be too high are refused as well.
    void share(std::atomic<Key>* limit) { limit_ = limit; }

    Key bound() const {
        const Key own = int64_t(heap_.size()) < k_ ? std::numeric_limits<Key>::max() : heap_.front().first;
        return limit_ ? std::min(own, limit_->load(std::memory_order_relaxed)) : own;
    }

    void offer(Key key, int64_t position) {
        if (int64_t(heap_.size()) == k_) {
            if (!(key < heap_.front().first)) return;
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.back() = {key, position};
        } else {
            heap_.emplace_back(key, position);
        }
        std::push_heap(heap_.begin(), heap_.end());
        if (limit_ && int64_t(heap_.size()) == k_) {
            // Another thread's codes of the same key may have lower positions. Of two threads that write at once
            // the higher limit may stay: it is right, too.
            const Key limit = just_above(heap_.front().first);
            if (limit < limit_->load(std::memory_order_relaxed)) limit_->store(limit, std::memory_order_relaxed);
        }
    }

    const std::vector<std::pair<Key, int64_t>>& found() const { return heap_; }

   private:
    int64_t k_;
    std::atomic<Key>* limit_ = nullptr;
    std::vector<std::pair<Key, int64_t>> heap_;  // the worst kept is at the front; pairs order by key, then position
};

template <class Key>
class Within {
   public:
    explicit Within(Key bound) : bound_(bound) {}
    void share(std::atomic<Key>*) {}
    Key bound() const { return bound_; }
    void offer(Key key, int64_t position) { found_.emplace_back(key, position); }
    const std::vector<std::pair<Key, int64_t>>& found() const { return found_; }

   private:
    Key bound_;
    std::vector<std::pair<Key, int64_t>> found_;
};

// What the threads of a scan have found, one collector per query for each.
template <class Collector>
using Parts = std::vector<std::vector<Collector>>;

// Calls scan(begin, end, collectors) over all codes, each taking about so many nanoseconds; collectors start as copies
// of `empty`. Each thread takes piece after piece, in ascending order.
template <class Collector, class Scan>
Parts<Collector> scan_parts(int n_threads, int64_t n_codes, double nanoseconds_each,
                            const std::vector<Collector>& empty, const Scan& scan) {
    using Key = decltype(empty[0].bound());
    const int n_slots = worthwhile_threads(n_threads, nanoseconds_each * double(n_codes));
    Parts<Collector> parts(n_slots, empty);
    if (n_slots == 1) {
        scan(0, n_codes, parts[0].data());
        return parts;
    }
    std::vector<std::atomic<Key>> limits(empty.size());
    for (auto& limit : limits) limit.store(std::numeric_limits<Key>::max());
    for (auto& part : parts)
        for (size_t q = 0; q < part.size(); ++q) part[q].share(&limits[q]);
    // Pieces of eight grains or more, for what a scan sets up, but several for each thread.
    const auto least = int64_t(8 * grain / nanoseconds_each) + 1;
    const int64_t piece =
        std::max<int64_t>(1, std::min(ceil_div(n_codes, n_slots), std::max(n_codes / (8 * n_slots), least)));
    std::atomic<int64_t> next{0};
    run_slots(n_slots, [&](int slot) {
        for (int64_t begin; (begin = next.fetch_add(piece)) < n_codes;)
            scan(begin, std::min(n_codes, begin + piece), parts[slot].data());
    });
    return parts;
}

// The best of all parts for each query, in order: keys and positions, (n_queries, k), -1 where there are fewer.
template <class Key>
void write_best(const Parts<Best<Key>>& parts, int64_t first_query, int64_t k, Key* keys, int64_t* positions) {
    std::vector<std::pair<Key, int64_t>> all;
    for (size_t q = 0; q < parts[0].size(); ++q) {
        all.clear();
        for (const auto& part : parts) all.insert(all.end(), part[q].found().begin(), part[q].found().end());
        const int64_t n = std::min<int64_t>(k, int64_t(all.size()));
        std::partial_sort(all.begin(), all.begin() + n, all.end());
        const int64_t row = (first_query + int64_t(q)) * k;
        for (int64_t i = 0; i < k; ++i) {
            if (i < n) keys[row + i] = all[i].first;
            positions[row + i] = i < n ? all[i].second : -1;
        }
    }
}

// Everything found, by ascending position, appended for each query; counts how many each query has.
template <class Key>
void write_within(const Parts<Within<Key>>& parts, int64_t first_query, int64_t capacity, int64_t& total, Key* keys,
                  int64_t* positions, int64_t* counts) {
    std::vector<std::pair<int64_t, Key>> all;
    for (size_t q = 0; q < parts[0].size(); ++q) {
        all.clear();
        for (const auto& part : parts)
            for (const auto& [key, position] : part[q].found()) all.emplace_back(position, key);
        if (parts.size() > 1) std::sort(all.begin(), all.end());
        for (const auto& [position, key] : all) {
            if (total < capacity) {
                keys[total] = key;
                positions[total] = position;
            }
            ++total;
        }
        counts[first_query + int64_t(q)] = int64_t(all.size());
    }
}

}  // namespace topsign
