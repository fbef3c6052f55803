// Collectors of a scan: the k best codes of each query, or all codes below a bound.
//
// Codes are offered with a key; smaller keys are better, and equal keys are ordered by id. Scans offer a code if
// `key < bound`.
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

// The next representable key above `key`.
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

    // Allows ids in any order. By default ids must ascend, so a key equal to the worst of a full list is rejected.
    void unordered() { ordered_ = false; }

    Key bound() const { return bound_.load(std::memory_order_relaxed); }
    int64_t wanted() const { return k_; }

    // Inserts the codes found by a thread. Unless `must`, returns false if another thread holds the lock.
    bool take(const std::vector<Kept<Key>>& codes, bool must) {
        std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
        if (must)
            lock.lock();
        else if (!lock.try_lock())
            return false;
        for (const Kept<Key>& code : codes) add(code);
        return true;
    }

    // Writes k keys and rows in order; missing rows are -1.
    void write(Key* keys, int64_t* rows) {
        std::sort(heap_.begin(), heap_.end());
        for (int64_t i = 0; i < k_; ++i) {
            const bool found = i < int64_t(heap_.size());
            if (found) keys[i] = heap_[i].key;
            rows[i] = found ? heap_[i].row : -1;
        }
    }

   private:
    void add(const Kept<Key>& code) {
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

    std::atomic<Key> bound_{std::numeric_limits<Key>::max()};
    const int64_t k_;
    bool ordered_ = true;
    std::mutex mutex_{};
    std::vector<Kept<Key>> heap_{};  // max-heap: the worst code is at the front
};

// Candidates of one thread for one query. With several threads, candidates are handed over in batches and the local
// bound may lag behind; otherwise threads would contend for the lock while bounds are still high.
template <class Key>
class Best {
   public:
    explicit Best(Top<Key>& top) : top_(&top) {}
    void begin(int n_threads, bool ascending) {
        if (n_threads > 1 || !ascending) top_->unordered();
        if (n_threads > 1) patience_ = std::min(kPatience, size_t(std::max<int64_t>(1, wanted())));
    }
    void follow(const Range& range) { range_ = &range; }
    void refresh() { bound_ = top_->bound(); }
    void finish() { hand_over(true); }
    Key bound() const { return bound_; }
    int64_t wanted() const { return top_->wanted(); }
    void offer(Key key, int64_t position) {
        found_.push_back({key, range_->id(position), range_->row(position)});
        if (found_.size() >= patience_) hand_over(found_.size() >= 8 * patience_ || patience_ == 1);
    }

   private:
    static constexpr size_t kPatience = 16;  // most codes per batch; the k best suffice to lower the bound

    void hand_over(bool must) {
        if (!top_->take(found_, must)) return;
        found_.clear();
        refresh();
    }

    Key bound_ = std::numeric_limits<Key>::max();
    Top<Key>* top_;
    const Range* range_ = nullptr;  // being scanned
    size_t patience_ = 1;
    std::vector<Kept<Key>> found_{};
};

// Top-k lists of a batch of queries.
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
    void begin(int, bool) {}
    void follow(const Range& range) { range_ = &range; }
    void refresh() {}
    void finish() {}
    Key bound() const { return bound_; }
    int64_t wanted() const { return std::numeric_limits<int64_t>::max(); }
    void offer(Key key, int64_t position) { found_.emplace_back(key, range_->row(position)); }
    const std::vector<std::pair<Key, int64_t>>& found() const { return found_; }

   private:
    Key bound_;
    const Range* range_ = nullptr;
    std::vector<std::pair<Key, int64_t>> found_{};
};

// Results of the threads of a scan, one collector per query and thread.
template <class Collector>
using Parts = std::vector<std::vector<Collector>>;

// Scans all codes in parallel; nanoseconds_each is the approximate cost per code. Each thread calls start() once and
// then calls the function that it returned with (range number, begin, end, collectors). Collectors are copies of
// `empty`. A call covers at least `group` codes and `least_grains` grains of work, except at the end.
template <class Collector, class Start>
Parts<Collector> scan_ranges(int n_threads, const Ranges& ranges, double nanoseconds_each,
                             const std::vector<Collector>& empty, const Start& start, int64_t group = 1,
                             double least_grains = 8) {
    const int n_slots = worthwhile_threads(n_threads, nanoseconds_each * double(ranges.n_codes()));
    Parts<Collector> parts(n_slots, empty);
    const bool ascending = ranges.ascending();
    for (auto& part : parts)
        for (auto& collector : part) collector.begin(n_slots, ascending);
    Pieces pieces(ranges.n_codes(), n_slots, std::max(group, int64_t(least_grains * grain / nanoseconds_each) + 1));
    run_slots(n_slots, [&](int slot) {
        auto scan = start();
        Range here;
        for (auto& collector : parts[slot]) collector.follow(here);
        for (int64_t first, last; pieces.take(first, last);) {
            for (auto& collector : parts[slot]) collector.refresh();
            ranges.visit(first, last, [&](int64_t number, int64_t begin, int64_t end) {
                here = ranges[number];
                scan(number, begin, end, parts[slot].data());
            });
        }
        for (auto& collector : parts[slot]) collector.finish();
    });
    return parts;
}

// The same, for a function scan(codes, begin, end, collectors) without state.
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

constexpr int64_t kMostListed = 64;

// Queries of a scan: the first `count`, or up to kMostListed that `numbers` lists. Collectors are in the order
// of the list.
struct QueryList {
    const int32_t* numbers;
    int64_t count;

    int64_t operator[](int64_t i) const { return numbers ? numbers[i] : i; }
};

// The same, for tables of queries that can be compared in any subset: each thread calls tables.start() once and then
// calls the function that it returned with (codes, begin, end, queries, collectors).
template <class Collector, class Tables>
Parts<Collector> scan_tables(int n_threads, const CodeRanges& codes, const Tables& tables,
                             const std::vector<Collector>& empty) {
    const QueryList all{nullptr, int64_t(empty.size())};
    const auto start = [&] {
        return [&, scan = tables.start()](int64_t number, int64_t begin, int64_t end, Collector* best) mutable {
            scan(codes.ranges[number], begin, end, all, best);
        };
    };
    return scan_ranges(n_threads, codes.all(), tables.cost(all.count), empty, start, Tables::kGroup);
}

// Appends the codes found for each query by ascending row, and writes the count of each query.
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
