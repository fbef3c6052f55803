// Visits of adaptive and sign codes: the codes of a region are copied once for all queries that visit it.
#pragma once

#include "../core/visits.h"
#include "hamming.h"
#include "scores.h"

namespace topsign {
namespace {

// State of a thread.
template <class Tables, class Key>
class CodeVisitor {
   public:
    CodeVisitor(const Layout& layout, const ts_visits& visits, const Tables& tables, const std::vector<Best<Key>>& tops)
        : layout_(layout),
          visits_(visits),
          tops_(tops),
          most_(std::max<int64_t>(64, std::min<int64_t>(4096, kNear / visits.code_bytes))),
          scan_(tables.start()) {}

    void gather(int64_t region) {
        const int64_t code_bytes = visits_.code_bytes;
        for_each_entry(visits_, region, [&](const ts_region_segment& segment, int64_t position) {
            const uint8_t* const code = segment.data + position * code_bytes;
            for (int64_t at = 0; at < code_bytes; at += 64) prefetch_line(code + at);
            prefetch_line(code + code_bytes - 1);
            gathered_.add(segment, position, code_bytes);
            if (segment.weights) weights_.push_back(segment.weights[position]);
        });
    }

    bool is_full() const { return gathered_.count() >= most_; }

    // Compares the gathered codes with these queries.
    void compare(const QueryList& queries) {
        for (int64_t first = 0; first < gathered_.count(); first += most_) {
            const int64_t n = std::min(most_, gathered_.count() - first);
            copy(first, n);
            for (int64_t q = 0; q < queries.count; q += kMostListed)
                compare(first, n, {queries.numbers + q, std::min(kMostListed, queries.count - q)});
        }
        gathered_.clear();
        weights_.clear();
    }

   private:
    static constexpr int64_t kNear = 1 << 18;  // bytes of codes that are copied at a time and stay in the near caches

    void copy(int64_t first, int64_t n) {
        const int64_t code_bytes = visits_.code_bytes;
        codes_.resize(most_ * code_bytes);
        for (int64_t i = 0; i < n; ++i) std::memcpy(&codes_[i * code_bytes], gathered_.codes[first + i], code_bytes);
    }

    void compare(int64_t first, int64_t n, const QueryList& queries) {
        const Range range = gathered_.range(first, n);
        const float* const weights = weights_.empty() ? nullptr : weights_.data() + first;
        const ts_codes codes{layout_, codes_.data(), n, nullptr, weights, nullptr, 0};
        collectors_.clear();
        for (int64_t q = 0; q < queries.count; ++q) {
            collectors_.push_back(tops_[queries[q]]);
            collectors_[q].refresh();
            collectors_[q].follow(range);
        }
        scan_(codes, 0, n, queries, collectors_.data());
        for (auto& collector : collectors_) collector.finish();
    }

    const Layout layout_;
    const ts_visits& visits_;
    const std::vector<Best<Key>>& tops_;
    const int64_t most_;  // codes that are copied at a time
    decltype(std::declval<const Tables&>().start()) scan_;
    GatheredCodes gathered_{};
    std::vector<float> weights_{};
    std::vector<uint8_t> codes_{};
    std::vector<Best<Key>> collectors_{};
};

// Writes the best codes of each query. For some queries at a time, so that their tables take little memory, calls
// search(visits, first query, use), which calls use(tables).
template <class Key, class Search>
void visit_codes(int n_threads, const Layout& layout, const ts_visits& visits, const ts_best& best,
                 const Search& search) {
    constexpr int64_t kTableBytes = int64_t(1) << 26, kBytesPerRow = 8;  // of all tables; of one, at most
    const int64_t most = std::max<int64_t>(1, kTableBytes / (kBytesPerRow * layout.n_pool));
    for (int64_t first = 0; first < visits.n_queries; first += most) {
        ts_visits some = visits;
        some.starts += first;
        some.n_queries = std::min(most, visits.n_queries - first);
        Tops<Key> tops(some.n_queries, best.k);
        search(some, first, [&](const auto& tables) {
            visit_regions(
                n_threads, some, tops, [&](int64_t n_queries) { return 20 + tables.cost(n_queries); },
                [&](const std::vector<Best<Key>>& collectors) {
                    return CodeVisitor<std::decay_t<decltype(tables)>, Key>(layout, some, tables, collectors);
                });
        });
        tops.write(static_cast<Key*>(best.values) + first * best.k, best.rows + first * best.k);
    }
}

template <class Isa>
void visit_mismatches(int n_threads, const ts_layout& layout, const ts_visits& visits, const ts_signs& queries,
                      const ts_best& best) {
    const int64_t bytes = ceil_div(layout.n_pool, 8);
    visit_codes<int32_t>(n_threads, layout, visits, best, [&](const ts_visits& some, int64_t first, const auto& use) {
        const uint8_t* const masks = queries.masks ? queries.masks + first * bytes : nullptr;
        with_tables<Isa>(n_threads, layout, ts_signs{queries.bits + first * bytes, masks, some.n_queries}, use);
    });
}

template <class Isa>
void visit_scores(int n_threads, const ts_layout& layout, const ts_visits& visits, const ts_rows& queries,
                  const ts_best& best) {
    visit_codes<float>(n_threads, layout, visits, best, [&](const ts_visits& some, int64_t first, const auto& use) {
        const ts_rows part{queries.values + first * queries.width, some.n_queries, queries.width};
        with_tables<Isa>(n_threads, layout, part, use);
    });
    float* const scores = static_cast<float*>(best.values);
    for (int64_t i = 0; i < visits.n_queries * best.k; ++i)
        if (best.rows[i] >= 0) scores[i] = -scores[i];
}

}  // namespace
}  // namespace topsign
