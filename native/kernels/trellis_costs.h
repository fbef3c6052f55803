// Cost of each event in each trellis state, for all entries of a cell.
//
// A cost is a constant shared by all entries plus products of the entry's targets with shared levels.
#pragma once

#include <algorithm>
#include <vector>

#include "trellis.h"

namespace topsign {
namespace {

class TrellisCosts {
   public:
    // Coordinates of an event are processed in pairs; the last pair may have one. The first table row holds the costs
    // of squares, the others the negated and shifted levels of the pairs, 16 bits per coordinate.
    struct Step {
        int64_t first_row, first_pair;
        int n_pairs;
        int shift;  // applied later, because shifted levels would exceed 16 bits
    };

    TrellisCosts(const ts_trellis& trellis, const ts_trellis_costs& costs)
        : trellis(trellis), costs(costs), events(events_of(trellis)), n_states(int64_t(1) << trellis.window) {
        int64_t rows = 0;
        for (const Event& event : events) {
            const int n = int(ceil_div(event.end - event.begin, 2));
            steps.push_back({rows, n_pairs, n, std::max(0, costs.shifts[event.begin] - kShiftedLevels)});
            rows += 1 + n;
            n_pairs += n;
        }
        rows_ = Lines<int32_t>(rows * n_states);
        n_bytes_ = 4 * rows * n_states;
    }

    int64_t n_bytes() const { return n_bytes_; }

    // Fills the rows of one event.
    void prepare(int64_t number) {
        const Event& event = events[number];
        const Step& step = steps[number];
        int32_t* const squares = rows_.data() + step.first_row * n_states;
        for (int64_t i = event.begin; i < event.end; ++i) {
            const uint16_t scale = uint16_t(trellis.multipliers[i % kSequences] << (16 - trellis.window));
            const uint16_t addend = trellis.addends[i % kSequences];
            const int32_t square_shift = costs.square_shifts[i], half = (1 << square_shift) >> 1;
            const int shift = std::min(costs.shifts[i], kShiftedLevels), place = 16 * int((i - event.begin) % 2);
            int32_t square_of[kLevels], level_of[kLevels];
            for (int l = 0; l < kLevels; ++l) {
                const int32_t level = trellis.levels[l];
                square_of[l] = (costs.squares[i] * (level * level) + half) >> square_shift;
                level_of[l] = int32_t(uint32_t(uint16_t(-(level * (1 << shift)))) << place);
            }
            int32_t* const levels = squares + (1 + (i - event.begin) / 2) * n_states;
            for (int64_t w = 0; w < n_states; ++w) {
                const int pick = uint16_t(uint16_t(w) * scale + addend) >> 9;
                squares[w] += square_of[pick];
                levels[w] |= level_of[pick];
            }
        }
    }

    const int32_t* row(int64_t number) const { return rows_.data() + number * n_states; }

    ts_trellis trellis;
    ts_trellis_costs costs;
    std::vector<Event> events;
    std::vector<Step> steps;
    int64_t n_states = 0, n_pairs = 0;

   private:
    static constexpr int kShiftedLevels = 8;  // largest shift of levels, which are below 2^7
    Lines<int32_t> rows_;
    int64_t n_bytes_ = 0;
};

}  // namespace
}  // namespace topsign
