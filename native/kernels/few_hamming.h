// Mismatches of one or a few queries on any instruction set, with a byte table per query.
#pragma once

#include "../core/collect.h"
#include "rows.h"
#include "sums.h"

namespace topsign {
namespace {

// Tables with a byte per signed location, 1 if the signs differ. Scans code by code and query by query.
template <class Isa>
class ByteTables {
   public:
    static constexpr int64_t kGroup = 1;

    ByteTables(int n_threads, const Layout& layout, const ts_signs& queries)
        : layout_(layout), stride_(table_rows(layout)), table_(queries.count * stride_) {
        const int64_t bytes = ceil_div(layout.n_pool, 8);
        parallel_for(n_threads, queries.count, 2 * double(layout.n_pool), [&](int64_t begin, int64_t end) {
            for (int64_t q = begin; q < end; ++q)
                for (int64_t location = 0; location < layout.n_pool; ++location)
                    for (int positive = 0; positive < 2; ++positive)
                        table_[q * stride_ + table_row(layout, location, positive)] =
                            get_bit(queries.bits + q * bytes, location) != positive;
        });
    }

    double cost(int64_t n_queries) const { return scan_cost(layout_, 80 * n_queries); }

    auto start() const {
        return [this](const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, auto* best) {
            narrow_rows(layout_, 0) ? scan<uint16_t>(codes, begin, end, queries, best)
                                    : scan<uint32_t>(codes, begin, end, queries, best);
        };
    }

   private:
    template <class Row, class Collector>
    void scan(const ts_codes& codes, int64_t begin, int64_t end, const QueryList& queries, Collector* best) const {
        const int64_t n_bits = layout_.n_bits;
        RowReader<Isa, Row> reader(layout_, codes.data, codes.count);
        std::vector<Row> rows(n_bits + reader.kSpare);
        for (int64_t i = begin; i < end; ++i) {
            if (!is_alive(codes.alive, i)) continue;
            reader.read(i, rows.data());
            for (int64_t q = 0; q < queries.count; ++q) {
                const uint8_t* differs = table_.data() + queries[q] * stride_;
                int32_t sums[4] = {0, 0, 0, 0};
                int64_t j = 0;
                for (; j + 4 <= n_bits; j += 4)
                    for (int s = 0; s < 4; ++s) sums[s] += differs[rows[j + s]];
                for (; j < n_bits; ++j) sums[0] += differs[rows[j]];
                const int32_t count = sums[0] + sums[1] + sums[2] + sums[3];
                if (count < best[q].bound()) best[q].offer(count, i);
            }
        }
    }

    const Layout layout_;
    const int64_t stride_;
    std::vector<uint8_t> table_;
};

}  // namespace
}  // namespace topsign
