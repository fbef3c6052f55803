// Encoding trellis codes: the path through 2^window states with the least weighted square error (Viterbi).
//
// All costs are integers modulo 2^32, compared by the sign of their difference: the tables are scaled so that no two
// paths ever differ by 2^31. Sums of integers have no order, so every path gives the same bytes.
//
// The ring must close. A first pass over the events around its beginning finds the state there; the second starts from
// that state and ends in one that leads to it.
#pragma once

#include <cmath>

#include "../core/threads.h"
#include "trellis.h"

namespace topsign {
namespace {

constexpr int kBatch = 16;                 // entries that share the costs of an event
constexpr uint32_t kForbidden = 1u << 30;  // more than any two paths differ by
constexpr int kDepth = 6;                  // windows on either side of the ring's beginning after which paths have met

template <class Isa>
class TrellisEncoder {
    static constexpr int kWidth = Isa::kBytes / 4;
    using Costs = Vec<uint32_t, kWidth>;
    using Ints = Vec<int32_t, kWidth>;
    using Shorts = Vec<int16_t, 2 * kWidth>;

   public:
    TrellisEncoder(const ts_trellis& trellis, const ts_trellis_costs& costs, const std::vector<Event>& events,
                   const std::vector<int8_t>& levels)
        : trellis_(trellis), costs_(costs), events_(events), levels_(levels), states_(int64_t(1) << trellis.window) {
        int64_t widest = 0, choices = 0;
        for (const Event& event : events) {
            widest = std::max(widest, event.end - event.begin);
            choices_.push_back(choices);
            choices += choices_of(event);
        }
        stride_ = choices;
        base_.resize(states_);
        pairs_.resize(ceil_div(widest, 2) * 2 * states_);
        least_.resize(2 * states_);
        cost_.resize(2 * kBatch * states_);
        chosen_.resize(kBatch * choices);
        targets_.resize(kBatch * (trellis.n_coded + 1));
        path_.resize(events.size());
    }

    // Codes of up to kBatch entries, whose coordinates lie in the rows of `projected`.
    void encode(const float* projected, int64_t n, uint8_t* codes) {
        round_targets(projected, n);
        const int64_t n_events = int64_t(events_.size()), depth = kDepth * trellis_.window;
        const int64_t around = std::min(n_events, 2 * depth);
        uint32_t first[kBatch];
        run(n_events - around / 2, around, n, nullptr);
        for (int64_t r = 0; r < n; ++r) {
            trace(n_events - around / 2, around, r, least_state(r));
            first[r] = path_[0];
        }
        run(n_events, n_events, n, first);
        for (int64_t r = 0; r < n; ++r) {
            trace(n_events, n_events, r, n_events == 1 ? first[r] : state_before(r, first[r]));
            write(codes + r * trellis_.code_bytes);
        }
    }

   private:
    static int64_t choices_of(const Event& event, int64_t states) {
        const int64_t left = states >> event.advance;
        return event.advance == 1 && states >= 2 * kWidth ? left / kWidth : left;
    }
    int64_t choices_of(const Event& event) const { return choices_of(event, states_); }

    uint32_t* costs(int64_t r, int64_t step) { return cost_.data() + (2 * r + step % 2) * states_; }

    void round_targets(const float* projected, int64_t n) {
        for (int64_t r = 0; r < n; ++r)
            for (int64_t i = 0; i < trellis_.n_coded; ++i) {
                const float target = projected[r * trellis_.n_coded + i] * costs_.scales[i];
                const float bounded = std::min(std::max(target, -float(costs_.limit)), float(costs_.limit));
                targets_[r * (trellis_.n_coded + 1) + i] = int16_t(std::nearbyint(bounded));
            }
    }

    // `count` events from number `begin` on, around the ring; the first state is free, or given for each entry.
    void run(int64_t begin, int64_t count, int64_t n, const uint32_t* first) {
        for (int64_t step = 0; step < count; ++step) {
            const int64_t number = (begin + step) % int64_t(events_.size());
            const Event& event = events_[number];
            prepare(event);
            for (int64_t r = 0; r < n; ++r) {
                uint32_t* const to = costs(r, step);
                const int16_t* const targets = targets_.data() + r * (trellis_.n_coded + 1) + event.begin;
                if (step == 0) {
                    start(event, targets, to);
                    if (first)
                        for (int64_t w = 0; w < states_; ++w) to[w] += w == first[r] ? 0 : kForbidden;
                    continue;
                }
                uint16_t* const chosen = chosen_.data() + r * stride_ + choices_[number];
                const uint32_t* const from = costs(r, step - 1);
                event.advance == 1 && states_ >= 2 * kWidth ? advance_one(event, targets, from, to, chosen)
                                                            : advance_more(event, targets, from, to, chosen);
            }
        }
        last_ = count - 1;
    }

    // What an event costs all entries alike, and the levels of its coordinates, two by two.
    void prepare(const Event& event) {
        std::fill(base_.begin(), base_.end(), 0);
        for (int64_t i = event.begin; i < event.end; ++i) {
            const int8_t* const levels = levels_.data() + i % kSequences * states_;
            int16_t* const pair = pairs_.data() + (i - event.begin) / 2 * 2 * states_;
            const int second = int((i - event.begin) % 2);
            const int32_t square = costs_.squares[i], shift = costs_.square_shifts[i], half = (1 << shift) >> 1;
            for (int64_t w = 0; w < states_; ++w) {
                const int32_t level = levels[w];
                base_[w] += uint32_t((square * (level * level) + half) >> shift);
                pair[2 * w + second] = int16_t(level);
            }
            if (i + 1 == event.end && !second)
                for (int64_t w = 0; w < states_; ++w) pair[2 * w + 1] = 0;
        }
    }

    // Adds the costs of states w, w + 1, ... of an event with N pairs of coordinates (0: any number).
    template <int N>
    struct Adder {
        const uint32_t* base;
        const int16_t* pairs;
        const int16_t* targets;
        int64_t states;
        int n_pairs, shift;

        TOPSIGN_INLINE Costs operator()(Costs before, int64_t w) const {
            Ints sum{};
            for (int p = 0; p < (N ? N : n_pairs); ++p)
                sum = sum + Isa::multiply_pairs(load<Shorts>(pairs + 2 * (p * states + w)), both(targets + 2 * p));
            return before + load<Costs>(base + w) - (cast<Costs>(sum) << shift);
        }

        static TOPSIGN_INLINE Shorts both(const int16_t* two) {
            int32_t word;
            std::memcpy(&word, two, 4);
            return cast<Shorts>(splat<Ints>(word));
        }
    };

    // Calls body(adder) with the adder made for the number of pairs.
    template <class Body>
    TOPSIGN_INLINE void with_adder(const Event& event, const int16_t* targets, const Body& body) {
        const int n = int(ceil_div(event.end - event.begin, 2)), shift = costs_.shifts[event.begin];
        const auto call = [&](auto count) {
            body(Adder<decltype(count)::value>{base_.data(), pairs_.data(), targets, states_, n, shift});
        };
        if (n == 1) return call(std::integral_constant<int, 1>());
        if (n == 2) return call(std::integral_constant<int, 2>());
        if (n == 3) return call(std::integral_constant<int, 3>());
        call(std::integral_constant<int, 0>());
    }

    void start(const Event& event, const int16_t* targets, uint32_t* to) {
        with_adder(event, targets, [&](const auto& add) {
            for (int64_t w = 0; w < states_; w += kWidth) store(to + w, add(Costs{}, w));
        });
    }

    static TOPSIGN_INLINE Costs choose(Ints mask, Costs a, Costs b) { return b ^ ((a ^ b) & cast<Costs>(mask)); }

    // One new bit: each state has two before it, half of all states apart.
    void advance_one(const Event& event, const int16_t* targets, const uint32_t* from, uint32_t* to, uint16_t* chosen) {
        const int64_t half = states_ / 2;
        with_adder(event, targets, [&](const auto& add) {
            for (int64_t m = 0; m < half; m += kWidth) {
                const Costs a = load<Costs>(from + m), b = load<Costs>(from + half + m);
                const Ints less = cast<Ints>(b - a) < Ints{};
                chosen[m / kWidth] = Isa::lane_bits(less);
                Costs low, high;
                Isa::double_lanes(choose(less, b, a), low, high);
                store(to + 2 * m, add(low, 2 * m));
                store(to + 2 * m + kWidth, add(high, 2 * m + kWidth));
            }
        });
    }

    // Several new bits, or few states.
    void advance_more(const Event& event, const int16_t* targets, const uint32_t* from, uint32_t* to,
                      uint16_t* chosen) {
        const int64_t left = states_ >> event.advance, n_before = int64_t(1) << event.advance;
        uint32_t* least = least_.data();
        uint32_t* spread = least + states_;
        int64_t m = 0;
        for (; m + kWidth <= left; m += kWidth) {
            Costs cost = load<Costs>(from + m), before{};
            for (int64_t q = 1; q < n_before; ++q) {
                const Costs other = load<Costs>(from + q * left + m);
                const Ints less = cast<Ints>(other - cost) < Ints{};
                cost = choose(less, other, cost);
                before = choose(less, splat<Costs>(uint32_t(q)), before);
            }
            store(least + m, cost);
            for (int i = 0; i < kWidth; ++i) chosen[m + i] = uint16_t(before[i]);
        }
        for (; m < left; ++m) {
            int64_t best = 0;
            for (int64_t q = 1; q < n_before; ++q)
                if (int32_t(from[q * left + m] - from[best * left + m]) < 0) best = q;
            least[m] = from[best * left + m];
            chosen[m] = uint16_t(best);
        }
        for (int64_t size = left; size < states_; size *= 2, std::swap(least, spread)) {
            int64_t at = 0;
            for (; at + kWidth <= size; at += kWidth) {
                Costs low, high;
                Isa::double_lanes(load<Costs>(least + at), low, high);
                store(spread + 2 * at, low);
                store(spread + 2 * at + kWidth, high);
            }
            for (; at < size; ++at) spread[2 * at] = spread[2 * at + 1] = least[at];
        }
        with_adder(event, targets, [&](const auto& add) {
            for (int64_t w = 0; w < states_; w += kWidth) store(to + w, add(load<Costs>(least + w), w));
        });
    }

    uint32_t least_state(int64_t r) {
        const uint32_t* const cost = costs(r, last_);
        uint32_t best = 0;
        for (int64_t w = 1; w < states_; ++w)
            if (int32_t(cost[w] - cost[best]) < 0) best = uint32_t(w);
        return best;
    }

    // The cheapest last state that the first one may follow.
    uint32_t state_before(int64_t r, uint32_t first) {
        const int advance = events_[0].advance;
        const uint32_t* const cost = costs(r, last_);
        const uint32_t common = first >> advance;
        uint32_t best = common;
        for (uint32_t q = 1; q < 1u << advance; ++q) {
            const uint32_t state = q << (trellis_.window - advance) | common;
            if (int32_t(cost[state] - cost[best]) < 0) best = state;
        }
        return best;
    }

    // States of all events of a run, back from its last one.
    void trace(int64_t begin, int64_t count, int64_t r, uint32_t state) {
        for (int64_t step = count - 1;; --step) {
            const int64_t number = (begin + step) % int64_t(events_.size());
            path_[number] = state;
            if (step == 0) return;
            const Event& event = events_[number];
            const uint16_t* const chosen = chosen_.data() + r * stride_ + choices_[number];
            const uint32_t m = state >> event.advance;
            const uint32_t q =
                event.advance == 1 && states_ >= 2 * kWidth ? chosen[m / kWidth] >> (m % kWidth) & 1u : chosen[m];
            state = q << (trellis_.window - event.advance) | m;
        }
    }

    void write(uint8_t* code) {
        ring_.assign(unrolled_bytes(trellis_), 0);
        for (size_t e = 0; e < events_.size(); ++e) {
            const int offset = events_[e].offset;
            const uint32_t bits = path_[e] << (24 - trellis_.window - (offset & 7));
            for (int b = 0; b < 3; ++b) ring_[(offset >> 3) + b] |= uint8_t(bits >> (16 - 8 * b));
        }
        for (int64_t bit = trellis_.n_bits; bit < trellis_.n_bits + trellis_.window; ++bit)
            if (ring_[bit >> 3] >> (7 - (bit & 7)) & 1) {
                const int64_t at = bit - trellis_.n_bits;
                ring_[at >> 3] |= uint8_t(1 << (7 - (at & 7)));
                ring_[bit >> 3] &= uint8_t(~(1 << (7 - (bit & 7))));
            }
        const int64_t n_bytes = std::min(ceil_div(trellis_.n_bits, 8), trellis_.code_bytes);
        std::memcpy(code, ring_.data(), n_bytes);
        std::memset(code + n_bytes, 0, trellis_.code_bytes - n_bytes);  // what is not of the ring
    }

    const ts_trellis& trellis_;
    const ts_trellis_costs& costs_;
    const std::vector<Event>& events_;
    const std::vector<int8_t>& levels_;
    int64_t states_, stride_ = 0, last_ = 0;
    std::vector<int64_t> choices_;  // where each event's choices begin
    std::vector<uint32_t> base_, least_, cost_, path_;
    std::vector<int16_t> pairs_, targets_;
    std::vector<uint16_t> chosen_;
    std::vector<uint8_t> ring_;
};

template <class Isa>
void trellis_encode(int n_threads, const ts_trellis& trellis, const ts_trellis_costs& costs, const ts_rows& projected,
                    uint8_t* codes) {
    const std::vector<Event> events = events_of(trellis);
    const int64_t states = int64_t(1) << trellis.window;
    std::vector<int8_t> levels(std::min<int64_t>(kSequences, trellis.n_coded) * states);
    for (size_t at = 0; at < levels.size(); ++at) levels[at] = level_of(trellis, at / states, uint32_t(at % states));
    const double batch_cost = 0.4 * kBatch * double(trellis.n_bits) * double(states);
    parallel_for(n_threads, ceil_div(projected.count, kBatch), batch_cost, [&](int64_t begin, int64_t end) {
        TrellisEncoder<Isa> encoder(trellis, costs, events, levels);
        for (int64_t batch = begin; batch < end; ++batch) {
            const int64_t first = batch * kBatch, n = std::min<int64_t>(kBatch, projected.count - first);
            encoder.encode(projected.values + first * trellis.n_coded, n, codes + first * trellis.code_bytes);
        }
    });
}

}  // namespace
}  // namespace topsign
