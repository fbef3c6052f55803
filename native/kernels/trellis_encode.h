// Encoding trellis codes: the path through 2^window states with the least weighted square error (Viterbi).
//
// All costs are integers modulo 2^32, compared by the sign of their difference: the tables are scaled so that no two
// paths ever differ by 2^31. Sums of integers have no order, so every path gives the same bytes.
//
// The ring must close. A first pass over the events around its beginning finds the state there; the second starts from
// that state and ends in one that leads to it.
//
// Entries stand side by side in the lanes of a register, so that a step is the same for all: what a level costs each of
// them is looked up in a table made for the event. Costs are updated in place. An event that brings k bits joins states
// that differ in their first k bits, and parts them by their last k; the new states take the places of the old, so that
// a state stands at its number turned by as many bits as have come.
#pragma once

#include <cmath>

#include "../core/threads.h"
#include "trellis.h"

namespace topsign {
namespace {

constexpr uint32_t kForbidden = 1u << 30;  // more than any two paths differ by
constexpr int kDepth = 6;                  // windows on either side of the ring's beginning after which paths have met

template <class Isa>
class TrellisEncoder {
   public:
    static constexpr int kEntries = Isa::kBytes / 4;  // that are encoded together

    TrellisEncoder(const ts_trellis& trellis, const ts_trellis_costs& costs, const std::vector<Event>& events,
                   const std::vector<uint16_t>& picks)
        : trellis_(trellis),
          costs_(costs),
          events_(events),
          picks_(picks),
          states_(int64_t(1) << trellis.window),
          steps_(states_),
          cost_(states_ * kEntries),
          targets_(trellis.n_coded * kEntries) {
        int64_t widest = 0, choices = 0;
        for (const Event& event : events) {
            widest = std::max(widest, event.end - event.begin);
            choices_.push_back(choices);
            choices += states_ - (states_ >> event.advance);
        }
        for (Prepared& one : prepared_) {
            one.level_costs = Lines<uint32_t>(widest * kLevels * kEntries);
            one.picks.resize(widest);
        }
        chosen_.resize(choices);
        path_.resize(events.size());
    }

    // Codes of up to kEntries entries, whose coordinates lie in the rows of `projected`.
    void encode(const float* projected, int64_t n, uint8_t* codes) {
        round_targets(projected, n);
        const int64_t n_events = int64_t(events_.size()), depth = kDepth * trellis_.window;
        const int64_t around = std::min(n_events, 2 * depth);
        uint32_t first[kEntries] = {}, last[kEntries];
        run(n_events - around / 2, around, nullptr);
        least_states(last);
        for (int64_t r = 0; r < n; ++r) {
            trace(n_events - around / 2, around, r, last[r]);
            first[r] = path_[0];
        }
        run(n_events, n_events, first);
        for (int64_t r = 0; r < n; ++r) {
            trace(n_events, n_events, r, n_events == 1 ? first[r] : state_before(r, first[r]));
            write(codes + r * trellis_.code_bytes);
        }
    }

   private:
    using Costs = Vec<uint32_t, kEntries>;
    using Ints = Vec<int32_t, kEntries>;
    using Shorts = Vec<int16_t, 2 * kEntries>;

    void round_targets(const float* projected, int64_t n) {
        for (int64_t r = 0; r < n; ++r)
            for (int64_t i = 0; i < trellis_.n_coded; ++i) {
                const float target = projected[r * trellis_.n_coded + i] * costs_.scales[i];
                const float bounded = std::min(float(costs_.limit), std::max(-float(costs_.limit), target));
                targets_[i * kEntries + r] = int32_t(std::nearbyint(bounded));
            }
    }

    // Where the costs of states are: at their numbers, turned. Held by value, so that it stays in registers.
    struct Places {
        uint32_t* first;
        int64_t mask;
        int turned, rest;

        TOPSIGN_INLINE int64_t of(int64_t state) const { return (state >> turned | state << rest) & mask; }
        TOPSIGN_INLINE uint32_t* costs(int64_t place) const { return first + place * kEntries; }
        TOPSIGN_INLINE uint32_t* costs_of(int64_t state) const { return costs(of(state)); }
    };
    Places places() { return {cost_.data(), states_ - 1, turned_, int(trellis_.window) - turned_}; }

    // `count` events from number `begin` on, around the ring; the first state is free, or given for each entry.
    void run(int64_t begin, int64_t count, const uint32_t* first) {
        turned_ = 0;
        const auto number = [&](int64_t step) { return (begin + step) % int64_t(events_.size()); };
        const auto advance = [&](int64_t step) { return step < count ? events_[number(step)].advance : 0; };
        const auto chosen = [&](int64_t step) { return chosen_.data() + choices_[number(step)]; };
        with_adder(prepare(number(0), 0), [&](const auto& add) { start(add, first); });
        for (int64_t step = 1; step < count;) {
            const Prepared& event = prepare(number(step), 0);
            if (advance(step) == 1 && advance(step + 1) == 1) {
                const Prepared& next = prepare(number(step + 1), 1);
                with_adder(event, [&](const auto& add) {
                    with_adder(next, [&](const auto& add_next) {
                        advance_two(add, add_next, chosen(step), chosen(step + 1));
                    });
                });
                step += 2;
                continue;
            }
            with_adder(event, [&](const auto& add) { this->advance(advance(step), add, chosen(step)); });
            ++step;
        }
    }

    // What each level of an event's coordinates costs each entry, and where the one begins that a state picks.
    struct Prepared {
        Lines<uint32_t> level_costs;
        std::vector<const uint16_t*> picks;
        int count = 0;
    };

    // Levels mirror each other: those of the upper half stand for both.
    const Prepared& prepare(int64_t number, int place) {
        constexpr int kHalf = kLevels / 2;
        const Event& event = events_[number];
        Prepared& prepared = prepared_[place];
        prepared.count = int(event.end - event.begin);
        int32_t levels[kHalf], squares[kHalf];
        for (int l = 0; l < kHalf; ++l) levels[l] = trellis_.levels[kHalf + l];
        for (int64_t i = event.begin; i < event.end; ++i) {
            const int64_t c = i - event.begin;
            prepared.picks[c] = picks_.data() + i % kSequences * states_;
            const int32_t square = costs_.squares[i], square_shift = costs_.square_shifts[i];
            const int32_t half = (1 << square_shift) >> 1, shift = costs_.shifts[i];
            for (int l = 0; l < kHalf; ++l) squares[l] = (square * (levels[l] * levels[l]) + half) >> square_shift;
            const Shorts targets = load<Shorts>(targets_.data() + i * kEntries);
            uint32_t* const upper = prepared.level_costs.data() + (c * kLevels + kHalf) * kEntries;
            for (int l = 0; l < kHalf; ++l) {
                const Costs alike = splat<Costs>(uint32_t(squares[l]));
                const Shorts level = cast<Shorts>(splat<Ints>(levels[l]));
                const Costs own = cast<Costs>(Isa::add_products(Ints{}, targets, level)) << shift;
                store(upper + l * kEntries, alike - own);
                store(upper - (l + 1) * kEntries, alike + own);
            }
        }
        return prepared;
    }

    // Adds what state w costs in an event of N coordinates (0: any number).
    template <int N>
    struct Adder {
        const uint32_t* level_costs;
        const uint16_t* const* every;
        int count;
        const uint16_t* few[N ? N : 1];

        explicit Adder(const Prepared& event)
            : level_costs(event.level_costs.data()), every(event.picks.data()), count(event.count) {
            for (int c = 0; c < N; ++c) few[c] = every[c];
        }

        TOPSIGN_INLINE Costs operator()(Costs cost, int64_t w) const {
            for (int c = 0; c < (N ? N : count); ++c) {
                const int64_t pick = N ? few[c][w] : every[c][w];
                cost = cost + load<Costs>(reinterpret_cast<const char*>(level_costs + c * kLevels * kEntries) + pick);
            }
            return cost;
        }
    };

    // Calls body(adder) with the adder made for the number of coordinates.
    template <class Body>
    TOPSIGN_INLINE void with_adder(const Prepared& event, const Body& body) {
        if (event.count == 1) return body(Adder<1>(event));
        if (event.count == 2) return body(Adder<2>(event));
        if (event.count == 3) return body(Adder<3>(event));
        body(Adder<0>(event));
    }

    template <class Add>
    void start(const Add add, const uint32_t* first) {
        const Places at = places();
        const Costs before = splat<Costs>(first ? kForbidden : 0);
        for (int64_t w = 0; w <= at.mask; ++w) store(at.costs(w), add(before, w));
        if (first)
            for (int r = 0; r < kEntries; ++r) at.costs(first[r])[r] -= kForbidden;
    }

    // Places of all numbers m of states without their first `bits` bits, in two loops: the bits of a place after those
    // begin m, the bits before them end it.
    struct Loop {
        int64_t count, place, m;
    };
    struct Loops {
        Loop outer, inner;
    };
    Loops loops(int bits) const {
        const int64_t rest = trellis_.window - turned_;
        if (rest < bits) return {{1, 0, 0}, {states_ >> bits, int64_t(1) << rest, 1}};
        const Loop after{int64_t(1) << (rest - bits), 1, int64_t(1) << turned_};
        const Loop before{int64_t(1) << turned_, int64_t(1) << rest, 1};
        return after.count < before.count ? Loops{after, before} : Loops{before, after};
    }

    // Calls body(cost, m) for each of them, with the costs of the state whose first bits are zeros.
    template <class Body>
    TOPSIGN_INLINE void each(int bits, const Body& body) {
        const Loops by = loops(bits);
        uint32_t* const first = cost_.data();
        for (int64_t o = 0; o < by.outer.count; ++o) {
            uint32_t* cost = first + o * by.outer.place * kEntries;
            for (int64_t m = o * by.outer.m, i = 0; i < by.inner.count; ++i) {
                body(cost, m);
                cost += by.inner.place * kEntries;
                m += by.inner.m;
            }
        }
        turned_ = (turned_ + bits) % int(trellis_.window);
    }

    // Two events of one new bit each, the second while the costs of the first are in registers. Before them, states
    // are two bits and m; between them a bit, m and a bit; after them m and two bits.
    template <class First, class Second>
    void advance_two(const First add, const Second add_next, uint16_t* chosen, uint16_t* chosen_next) {
        const Places at = places();
        const int64_t half = states_ / 2, quarter = states_ / 4;
        const int64_t one = at.of(quarter) * kEntries, two = at.of(half) * kEntries;
        each(2, [=](uint32_t* cost, int64_t m) {
            Costs low = load<Costs>(cost), high = load<Costs>(cost + one);
            chosen[m] = Isa::take_less(low, load<Costs>(cost + two));
            chosen[quarter + m] = Isa::take_less(high, load<Costs>(cost + one + two));
            Costs zero = add(low, 2 * m), odd = add(low, 2 * m + 1);
            chosen_next[2 * m] = Isa::take_less(zero, add(high, half + 2 * m));
            chosen_next[2 * m + 1] = Isa::take_less(odd, add(high, half + 2 * m + 1));
            store(cost, add_next(zero, 4 * m));
            store(cost + one, add_next(zero, 4 * m + 1));
            store(cost + two, add_next(odd, 4 * m + 2));
            store(cost + one + two, add_next(odd, 4 * m + 3));
        });
    }

    // Any number of new bits: the states before are compared in pairs, then the lesser ones, of equals the first.
    template <class Add>
    void advance(int bits, const Add add, uint16_t* chosen) {
        const Places at = places();
        const int64_t n_before = int64_t(1) << bits, left = states_ >> bits;
        for (int64_t q = 0; q < n_before; ++q) steps_[q] = at.of(q * left) * kEntries;
        const int64_t* const steps = steps_.data();
        each(bits, [=](uint32_t* cost, int64_t m) {
            for (int64_t apart = 1; apart < n_before; apart *= 2)
                for (int64_t q = 0; q < n_before; q += 2 * apart) {
                    Costs least = load<Costs>(cost + steps[q]);
                    chosen[m * (n_before - 1) + q + apart - 1] =
                        Isa::take_less(least, load<Costs>(cost + steps[q + apart]));
                    store(cost + steps[q], least);
                }
            const Costs least = load<Costs>(cost);
            for (int64_t q = 0; q < n_before; ++q) store(cost + steps[q], add(least, m * n_before + q));
        });
    }

    void least_states(uint32_t* out) {
        const Places at = places();
        Costs least = load<Costs>(at.costs_of(0)), best{};
        for (int64_t w = 1; w <= at.mask; ++w) {
            const Costs other = load<Costs>(at.costs_of(w));
            const Costs less = cast<Costs>(cast<Ints>(other - least) < Ints{});
            least = least ^ ((least ^ other) & less);
            best = best ^ ((best ^ splat<Costs>(uint32_t(w))) & less);
        }
        store(out, best);
    }

    // The cheapest last state that the first one may follow.
    uint32_t state_before(int64_t r, uint32_t first) {
        const Places at = places();
        const int advance = events_[0].advance;
        const uint32_t common = first >> advance;
        uint32_t best = common;
        for (uint32_t q = 1; q < 1u << advance; ++q) {
            const uint32_t state = q << (trellis_.window - advance) | common;
            if (int32_t(at.costs_of(state)[r] - at.costs_of(best)[r]) < 0) best = state;
        }
        return best;
    }

    // States of all events of a run, back from its last one.
    void trace(int64_t begin, int64_t count, int64_t r, uint32_t state) {
        for (int64_t step = count - 1;; --step) {
            const int64_t number = (begin + step) % int64_t(events_.size());
            path_[number] = state;
            if (step == 0) return;
            const int advance = events_[number].advance;
            const uint32_t m = state >> advance;
            const uint16_t* const chosen = chosen_.data() + choices_[number] + int64_t(m) * ((1 << advance) - 1);
            uint32_t q = 0;
            for (uint32_t apart = 1u << (advance - 1); apart; apart /= 2)
                q += (chosen[q + apart - 1] >> r & 1u) * apart;
            state = q << (trellis_.window - advance) | m;
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
    const std::vector<uint16_t>& picks_;
    int64_t states_;
    int turned_ = 0;                // bits, by which places of states are turned
    std::vector<int64_t> choices_;  // where each event's choices begin
    std::vector<uint16_t> chosen_;  // a bit for each entry
    std::vector<uint32_t> path_;
    std::vector<int64_t> steps_;
    Prepared prepared_[2];
    Lines<uint32_t> cost_;
    Lines<int32_t> targets_;
    std::vector<uint8_t> ring_;
};

template <class Isa>
void trellis_encode(int n_threads, const ts_trellis& trellis, const ts_trellis_costs& costs, const ts_rows& projected,
                    uint8_t* codes) {
    constexpr int64_t kEntries = TrellisEncoder<Isa>::kEntries;
    const std::vector<Event> events = events_of(trellis);
    const int64_t states = int64_t(1) << trellis.window;
    const int64_t sequences = std::min<int64_t>(kSequences, trellis.n_coded);
    std::vector<uint16_t> picks(sequences * states);  // where the costs of the level that a state means begin
    for (int64_t s = 0; s < sequences; ++s) {
        const uint16_t step = uint16_t(trellis.multipliers[s] << (16 - trellis.window)), addend = trellis.addends[s];
        for (int64_t w = 0; w < states; ++w)
            picks[s * states + w] = uint16_t(uint16_t(uint16_t(w) * step + addend) >> 9) * (4 * kEntries);
    }
    const double batch_cost = 0.1 * kEntries * double(trellis.n_bits + trellis.n_coded) * double(states);
    parallel_for(n_threads, ceil_div(projected.count, kEntries), batch_cost, [&](int64_t begin, int64_t end) {
        TrellisEncoder<Isa> encoder(trellis, costs, events, picks);
        for (int64_t batch = begin; batch < end; ++batch) {
            const int64_t first = batch * kEntries, n = std::min(kEntries, projected.count - first);
            encoder.encode(projected.values + first * trellis.n_coded, n, codes + first * trellis.code_bytes);
        }
    });
}

}  // namespace
}  // namespace topsign
