// What a scan keeps: the k best codes of each query, or every code below a bound.
//
// Codes are offered in ascending order of position within a part, with a key of which less is better. A key equal
// to the bound of a full list cannot enter: its position is higher. So scans test `key < bound` and no more.
#pragma once

#include <limits>
#include <utility>

#include "threads.h"

namespace topsign {

template <class Key>
class Best {
   public:
    explicit Best(int64_t k) : k_(k) {}

    Key bound() const { return int64_t(heap_.size()) < k_ ? std::numeric_limits<Key>::max() : heap_.front().first; }

    void offer(Key key, int64_t position) {
        if (int64_t(heap_.size()) == k_) {
            if (!(key < heap_.front().first)) return;
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.back() = {key, position};
        } else {
            heap_.emplace_back(key, position);
        }
        std::push_heap(heap_.begin(), heap_.end());
    }

    const std::vector<std::pair<Key, int64_t>>& found() const { return heap_; }

   private:
    int64_t k_;
    std::vector<std::pair<Key, int64_t>> heap_;  // the worst kept is at the front; pairs order by key, then position
};

template <class Key>
class Within {
   public:
    explicit Within(Key bound) : bound_(bound) {}
    Key bound() const { return bound_; }
    void offer(Key key, int64_t position) { found_.emplace_back(key, position); }
    const std::vector<std::pair<Key, int64_t>>& found() const { return found_; }

   private:
    Key bound_;
    std::vector<std::pair<Key, int64_t>> found_;
};

// The parts of the codes that threads scan, each with its own collectors, one per query.
template <class Collector>
using Parts = std::vector<std::vector<Collector>>;

// Calls scan(begin, end, collectors) for each part; collectors start as copies of `empty`.
template <class Collector, class Scan>
Parts<Collector> scan_parts(int n_threads, int64_t n_codes, const std::vector<Collector>& empty, const Scan& scan) {
    const int64_t n_parts = std::max<int64_t>(1, std::min<int64_t>(n_threads, n_codes / 64));
    Parts<Collector> parts(n_parts, empty);
    parallel_for(int(n_parts), n_parts, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p)
            scan(n_codes * p / n_parts, n_codes * (p + 1) / n_parts, parts[p].data());
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
    for (size_t q = 0; q < parts[0].size(); ++q) {
        int64_t count = 0;
        for (const auto& part : parts)
            for (const auto& [key, position] : part[q].found()) {
                if (total < capacity) {
                    keys[total] = key;
                    positions[total] = position;
                }
                ++total;
                ++count;
            }
        counts[first_query + int64_t(q)] = count;
    }
}

}  // namespace topsign
