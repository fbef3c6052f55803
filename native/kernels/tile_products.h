// Products: a block of codes is decoded to bytes once and multiplied with a batch of queries in bytes.
#pragma once

#include "levels.h"

namespace topsign {
namespace {

// Digits of queries as bytes: value = 256 * high + low, padded to whole groups of four. Values are at most 127 * 255.
class Digits {
   public:
    Digits(const ts_scoring& scoring, const ts_queries& queries)
        : width_(ceil_div(scoring.width, 4) * 4), values_(2 * queries.count * width_), sums_(2 * queries.count) {
        for (int64_t q = 0; q < queries.count; ++q)
            for (int64_t i = 0; i < scoring.width; ++i) {
                const int32_t value = queries.values[q * scoring.width + i];
                const int32_t high = (value + 128) >> 8, low = value - 256 * high;
                values_[2 * q * width_ + i] = int8_t(high);
                values_[(2 * q + 1) * width_ + i] = int8_t(low);
                sums_[2 * q] += high;
                sums_[2 * q + 1] += low;
            }
    }

    int64_t n_groups() const { return width_ / 4; }
    const int8_t* high(int64_t q) const { return values_.data() + 2 * q * width_; }
    const int8_t* low(int64_t q) const { return high(q) + width_; }
    int32_t high_sum(int64_t q) const { return sums_[2 * q]; }
    int32_t low_sum(int64_t q) const { return sums_[2 * q + 1]; }

   private:
    const int64_t width_;
    std::vector<int8_t> values_;
    std::vector<int32_t> sums_;
};

// Levels of a block in groups of four coordinates; the four of a code are adjacent, codes in the order of sums.
template <class Isa>
class ProductTile {
   public:
    static constexpr int kWidth = Isa::kBytes / 4, kRegisters = int(kBlock) / kWidth;
    using V = Vec<uint8_t, Isa::kBytes>;
    using Ints = Vec<int32_t, kWidth>;

    explicit ProductTile(const ts_scoring& scoring)
        : bytes_(plain_bytes(scoring)),
          n_groups_(ceil_div(scoring.width, 4)),
          decoder_(scoring),
          code_(bytes_ + kCodePadding),
          row_(4 * n_groups_),
          levels_(n_groups_ * 4 * kBlock) {}

    void enter(const uint8_t* block) {
        for (int lane = 0; lane < int(kBlock); ++lane) {
            read_code(block, lane, bytes_, code_.data());
            decoder_.decode(code_.data(), row_.data());
            int8_t* const to = levels_.data() + 4 * split_place(lane);
            for (int64_t g = 0; g < n_groups_; ++g) std::memcpy(to + 4 * kBlock * g, row_.data() + 4 * g, 4);
        }
    }

    // Sums of N rows of bytes with all codes; `totals` are the sums of the rows.
    template <int N>
    void sums(const int8_t* const (&rows)[N], const int32_t (&totals)[N], int32_t (*out)[kBlock]) const {
        Ints sum[N][kRegisters] = {};
        const int8_t* levels = levels_.data();
        for (int64_t g = 0; g < n_groups_; ++g, levels += 4 * kBlock) {
            V some[kRegisters];
            for (int r = 0; r < kRegisters; ++r) some[r] = Isa::biased(load<V>(levels + r * Isa::kBytes));
            for (int q = 0; q < N; ++q) {
                const Ints four = splat<Ints>(load<int32_t>(rows[q] + 4 * g));
                for (int r = 0; r < kRegisters; ++r) sum[q][r] = Isa::add_byte_products(sum[q][r], some[r], four);
            }
        }
        for (int q = 0; q < N; ++q)
            for (int r = 0; r < kRegisters; ++r)
                store(out[q] + r * kWidth, sum[q][r] - splat<Ints>(Isa::kBias * totals[q]));
    }

   private:
    const int64_t bytes_, n_groups_;
    LevelDecoder decoder_;
    std::vector<uint8_t> code_;
    std::vector<int8_t> row_, levels_;
};

}  // namespace
}  // namespace topsign
