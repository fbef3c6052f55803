// Plain C++ implementations of all operations. Instruction sets derive from it and override the faster ones.
#pragma once

#include "../kernels/planes.h"
#include "../kernels/rows.h"
#include "../kernels/select.h"
#include "../kernels/sums.h"

namespace topsign {
namespace {

struct Plain {
    static constexpr bool kLooksUp =
        false;  // bytes in tables of sixteen (block_hamming.h, word_hamming.h, few_scores.h)

    static constexpr bool kPermutesBlocks = false;  // bytes in tables of 128 (code_groups.h)

    // Number of queries up to which queries are looked up one by one; break-even measured at 512 of 8,192.
    static constexpr int64_t kFewFast = 1, kFewCompact = 1, kFewScoresFast = 2, kFewScoresCompact = 2;

    template <class P>
    using Pair = XorPair<P>;

    // Writes those of kCompressed magnitudes that reach `floor`, and their rows; returns their number.
    static constexpr int64_t kCompressed = 4;
    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        int64_t n = 0;
        for (int i = 0; i < kCompressed; ++i) {  // without branches
            const int32_t value = magnitude_bits(y[i]);
            magnitudes[n] = value;
            rows[n] = row + i;
            n += value >= floor;
        }
        return n;
    }

    // Writes those of kCompressed rows whose magnitude reaches `least`; may overwrite `rows`. Returns their number.
    static TOPSIGN_INLINE int64_t compress_rows(const int32_t* magnitudes, const int32_t* rows, int32_t least,
                                                int32_t* kept) {
        int64_t n = 0;
        for (int i = 0; i < kCompressed; ++i) {
            kept[n] = rows[i];
            n += magnitudes[i] >= least;
        }
        return n;
    }

    // Widens bytes to 16 or 32 bits and floats to doubles.
    template <class V, class Bytes>
    static TOPSIGN_INLINE V widen(Bytes bytes) {
        return convert<V>(bytes);
    }

    static TOPSIGN_INLINE void prefetch(const void*) {}
    static TOPSIGN_INLINE int count_byte(uint8_t byte) { return kOnesOfByte.count[byte]; }
    static TOPSIGN_INLINE uint64_t spread(uint64_t fields, const Spread& by) { return by(fields); }

    static int32_t count_mismatches(const uint32_t* kept, int64_t n, const uint32_t* query) {
        return topsign::count_mismatches(kept, 0, n, query);
    }

    static float sum_kept(const uint32_t* kept, int64_t n, const float* query) {
        LaneSum sum;
        return topsign::sum_kept(kept, 0, n, query, sum);
    }
};

}  // namespace
}  // namespace topsign
