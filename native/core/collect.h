// Collectors of a scan: the k best codes of each query, or all codes that reach a bound. Codes of equal value are
// ordered by id.
#pragma once

#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "blocks.h"
#include "threads.h"

namespace topsign {

struct Kept {
    float value;
    int64_t id, row;
    // Whether this code is better.
    bool operator<(const Kept& other) const { return value != other.value ? value > other.value : id < other.id; }
};

// The k best codes of a query, shared by all threads and ranges of a search.
class alignas(64) Top {
   public:
    explicit Top(int64_t k) : k_(k) {}

    // Allows ids in any order. By default ids must ascend, so a value equal to the worst of a full list is rejected.
    void unordered() { ordered_ = false; }

    // Values up to this one cannot enter.
    float bound() const { return bound_.load(std::memory_order_relaxed); }
    int64_t wanted() const { return k_; }

    // Inserts the codes found by a thread. Unless `must`, returns false if another thread holds the lock.
    bool take(const std::vector<Kept>& codes, bool must) {
        std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
        if (must)
            lock.lock();
        else if (!lock.try_lock())
            return false;
        for (const Kept& code : codes) add(code);
        return true;
    }

    // The codes, best first.
    const std::vector<Kept>& sorted() {
        std::sort(heap_.begin(), heap_.end());
        return heap_;
    }

    // Writes k values and rows in order; missing rows are -1.
    void write(float* values, int64_t* rows) {
        sorted();
        for (int64_t i = 0; i < k_; ++i) {
            const bool found = i < int64_t(heap_.size());
            if (found) values[i] = heap_[i].value;
            rows[i] = found ? heap_[i].row : -1;
        }
    }

   private:
    void add(const Kept& code) {
        if (int64_t(heap_.size()) == k_) {
            if (!(code < heap_.front())) return;
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.back() = code;
        } else {
            heap_.push_back(code);
        }
        std::push_heap(heap_.begin(), heap_.end());
        const float worst = heap_.front().value, below = std::nextafter(worst, -std::numeric_limits<float>::infinity());
        if (int64_t(heap_.size()) == k_) bound_.store(ordered_ ? worst : below, std::memory_order_relaxed);
    }

    std::atomic<float> bound_{-std::numeric_limits<float>::infinity()};
    const int64_t k_;
    bool ordered_ = true;
    std::mutex mutex_{};
    std::vector<Kept> heap_{};  // the worst code is at the front
};

// Candidates of one thread for one query. With several threads, candidates are handed over in batches and the local
// bound may lag behind; otherwise threads would contend for the lock while bounds are still low.
class Best {
   public:
    static constexpr bool kRounded = false;  // whether it takes rounded scores
    explicit Best(Top& top) : top_(&top) {}
    void begin(int n_threads, bool ascending) {
        if (n_threads > 1 || !ascending) top_->unordered();
        if (n_threads > 1) patience_ = std::min(kPatience, size_t(std::max<int64_t>(1, top_->wanted())));
    }
    void refresh() { bound_ = top_->bound(); }
    void finish() { hand_over(true); }
    float bound() const { return bound_; }
    void offer(float value, const ts_codes& codes, int64_t position) {
        found_.push_back({value, id_of(codes, position), row_of(codes, position)});
        if (found_.size() >= patience_) hand_over(found_.size() >= 8 * patience_ || patience_ == 1);
    }

   private:
    static constexpr size_t kPatience = 16;  // most codes per batch; the k best suffice to raise the bound

    void hand_over(bool must) {
        if (!top_->take(found_, must)) return;
        found_.clear();
        refresh();
    }

    float bound_ = -std::numeric_limits<float>::infinity();
    Top* top_;
    size_t patience_ = 1;
    std::vector<Kept> found_{};
};

// Top-k lists of a batch of queries.
class Tops {
   public:
    Tops(int64_t n_queries, int64_t k) : k_(k) {
        for (int64_t q = 0; q < n_queries; ++q) tops_.emplace_back(k);
    }

    std::vector<Best> collectors() { return {tops_.begin(), tops_.end()}; }

    // (n_queries, k)
    void write(float* values, int64_t* rows) {
        for (auto& top : tops_) {
            top.write(values, rows);
            values += k_;
            rows += k_;
        }
    }

   private:
    int64_t k_;
    std::deque<Top> tops_{};
};

// All codes of one thread that reach a threshold, for one query.
class Within {
   public:
    static constexpr bool kRounded = false;
    explicit Within(float threshold) : bound_(std::nextafter(threshold, -std::numeric_limits<float>::infinity())) {}
    void begin(int, bool) {}
    void refresh() {}
    void finish() {}
    float bound() const { return bound_; }
    void offer(float value, const ts_codes& codes, int64_t position) {
        found_.emplace_back(row_of(codes, position), value);
    }
    const std::vector<std::pair<int64_t, float>>& found() const { return found_; }

   private:
    float bound_;
    std::vector<std::pair<int64_t, float>> found_{};
};

// Results of the threads of a scan, one collector per query and thread.
template <class Collector>
using Parts = std::vector<std::vector<Collector>>;

// Appends the codes found for queries from `first` on, by ascending row, to the `total` before them.
inline void write_within(const Parts<Within>& parts, int64_t first, const ts_found& found, int64_t& total) {
    std::vector<std::pair<int64_t, float>> all;
    for (size_t q = 0; q < parts[0].size(); ++q) {
        all.clear();
        for (const auto& part : parts) all.insert(all.end(), part[q].found().begin(), part[q].found().end());
        if (!std::is_sorted(all.begin(), all.end())) std::sort(all.begin(), all.end());
        for (const auto& [row, value] : all) {
            if (total < found.capacity) {
                found.values[total] = value;
                found.rows[total] = row;
            }
            ++total;
        }
        found.counts[first + int64_t(q)] = int64_t(all.size());
    }
}

}  // namespace topsign
