// Encoding trellis codes: the path through 2^window states with the least weighted square error (Viterbi).
//
// All costs are integers modulo 2^32, compared by the sign of their difference: the tables are scaled so that no two
// paths ever differ by 2^31. Integer sums do not depend on their order, so all paths produce the same bytes.
//
// The ring must close. A first pass over the events around its beginning finds the state there; the second starts from
// that state and ends in one that leads to it.
//
// Each lane of a register encodes one entry. The cost of a state in an event is a constant shared by all entries plus
// products of the entry's targets with shared levels, two coordinates per instruction. Costs are updated in place. An
// event with k new bits merges states that differ in their first k bits and branches on the last k; new states
// overwrite the old ones, so a state is stored at its number rotated by the number of bits consumed.
#pragma once

#include <cmath>

#include "../core/threads.h"
#include "trellis_costs.h"

namespace topsign {
namespace {

constexpr uint32_t kForbidden = 1u << 30;  // larger than the difference of any two paths
constexpr int kDepth = 6;                  // windows on either side of the ring's start within which paths merge

template <class Isa>
class TrellisEncoder {
   public:
    static constexpr int kEntries = Isa::kBytes / 4;  // encoded together

    // Selects the cell of the following entries.
    void enter(const TrellisCosts& cell) {
        if (cell_ == &cell) return;
        cell_ = &cell;
        states_ = cell.n_states;
        window_ = int(cell.trellis.window);
        steps_.resize(states_);
        cost_.fit(states_ * kEntries);
        targets_ = Lines<int32_t>(cell.n_pairs * kEntries);
        choices_.clear();
        int64_t choices = 0;
        for (const Event& event : cell.events) {
            choices_.push_back(choices);
            choices += states_ - (states_ >> event.advance);
        }
        chosen_.resize(choices);
        path_.resize(cell.events.size() * kEntries);
    }

    // Encodes up to kEntries entries from the rows of `projected`; code(r) is the destination.
    template <class Code>
    void encode(const float* projected, int64_t n, const Code& code) {
        round_targets(projected, n);
        const int64_t n_events = int64_t(cell_->events.size()), depth = kDepth * window_;
        const int64_t around = std::min(n_events, 2 * depth);
        uint32_t first[kEntries] = {}, last[kEntries];
        run(n_events - around / 2, around, nullptr);
        least_states(last);
        trace(n_events - around / 2, around, n, last);
        std::copy(path_.begin(), path_.begin() + n, first);
        run(n_events, n_events, first);
        for (int64_t r = 0; r < n; ++r) last[r] = n_events == 1 ? first[r] : state_before(r, first[r]);
        trace(n_events, n_events, n, last);
        for (int64_t r = 0; r < n; ++r) write(r, code(r));
    }

   private:
    using Costs = Vec<uint32_t, kEntries>;
    using Ints = Vec<int32_t, kEntries>;
    using Shorts = Vec<int16_t, 2 * kEntries>;

    // The two targets of a pair are the halves of a 32-bit lane.
    void round_targets(const float* projected, int64_t n) {
        const float limit = float(cell_->costs.limit);
        int32_t* to = targets_.data();
        for (const Event& event : cell_->events)
            for (int64_t i = event.begin; i < event.end; i += 2, to += kEntries)
                for (int64_t r = 0; r < n; ++r) {
                    uint32_t pair = 0;
                    for (int64_t c = i; c < std::min(i + 2, event.end); ++c) {
                        const float target = projected[r * cell_->trellis.n_coded + c] * cell_->costs.scales[c];
                        const float bounded = std::min(limit, std::max(-limit, target));
                        pair |= uint32_t(uint16_t(int32_t(std::nearbyint(bounded)))) << 16 * (c - i);
                    }
                    to[r] = int32_t(pair);
                }
    }

    // Storage order of the costs: state numbers, rotated. Passed by value to stay in registers.
    struct Places {
        uint32_t* first;
        int64_t mask;
        int turned, rest;

        TOPSIGN_INLINE int64_t of(int64_t state) const { return (state >> turned | state << rest) & mask; }
        TOPSIGN_INLINE uint32_t* costs(int64_t place) const { return first + place * kEntries; }
        TOPSIGN_INLINE uint32_t* costs_of(int64_t state) const { return costs(of(state)); }
    };
    Places places() { return {cost_.data(), states_ - 1, turned_, window_ - turned_}; }

    // Processes `count` events starting at `begin`, around the ring; the first state is free or given per entry.
    void run(int64_t begin, int64_t count, const uint32_t* first) {
        turned_ = 0;
        const auto& events = cell_->events;
        const auto number = [&](int64_t step) { return (begin + step) % int64_t(events.size()); };
        const auto advance = [&](int64_t step) { return step < count ? events[number(step)].advance : 0; };
        const auto chosen = [&](int64_t step) { return chosen_.data() + choices_[number(step)]; };
        with_adder(number(0), [&](const auto& add) { start(add, first); });
        for (int64_t step = 1; step < count;) {
            const int bits = advance(step), next_bits = advance(step + 1);
            if (bits <= 2 && next_bits >= 1 && next_bits <= 2) {
                with_adder(number(step), [&](const auto& add) {
                    with_adder(number(step + 1), [&](const auto& add_next) {
                        with_bits(bits, [&](auto one) {
                            with_bits(next_bits, [&](auto two) {
                                this->template advance_two<one, two>(add, add_next, chosen(step), chosen(step + 1));
                            });
                        });
                    });
                });
                step += 2;
                continue;
            }
            with_adder(number(step), [&](const auto& add) { this->advance(bits, add, chosen(step)); });
            ++step;
        }
    }

    // Adds the cost of state w in an event of N pairs of coordinates (0: any number).
    template <int N>
    struct Adder {
        const int32_t* squares;
        const int32_t* targets;
        int64_t n_states;
        int count, shift;
        Shorts few[N ? N : 1];

        Adder(const TrellisCosts& cell, const TrellisCosts::Step& step, const int32_t* all_targets)
            : squares(cell.row(step.first_row)),
              targets(all_targets + step.first_pair * kEntries),
              n_states(cell.n_states),
              count(step.n_pairs),
              shift(step.shift) {
            for (int p = 0; p < N; ++p) few[p] = load<Shorts>(targets + p * kEntries);
        }

        TOPSIGN_INLINE Costs operator()(Costs cost, int64_t w) const {
            if constexpr (N > 0) {
                Ints sum = cast<Ints>(cost + splat<Costs>(uint32_t(squares[w])));
                for (int p = 0; p < N; ++p) sum = Isa::add_products(sum, few[p], levels(p, w));
                return cast<Costs>(sum);
            }
            Ints sum{};
            for (int p = 0; p < count; ++p)
                sum = Isa::add_products(sum, load<Shorts>(targets + p * kEntries), levels(p, w));
            return cost + splat<Costs>(uint32_t(squares[w])) + (cast<Costs>(sum) << shift);
        }

        TOPSIGN_INLINE Shorts levels(int p, int64_t w) const {
            return cast<Shorts>(splat<Ints>(squares[(1 + p) * n_states + w]));
        }
    };

    // Calls body(adder) with the adder of an event.
    template <class Body>
    TOPSIGN_INLINE void with_adder(int64_t number, const Body& body) {
        const TrellisCosts::Step& step = cell_->steps[number];
        if (step.n_pairs == 1 && step.shift == 0) return body(Adder<1>(*cell_, step, targets_.data()));
        if (step.n_pairs == 2 && step.shift == 0) return body(Adder<2>(*cell_, step, targets_.data()));
        body(Adder<0>(*cell_, step, targets_.data()));
    }

    // Calls body(bits) with one or two bits as a constant.
    template <class Body>
    static TOPSIGN_INLINE void with_bits(int bits, const Body& body) {
        if (bits == 1) return body(std::integral_constant<int, 1>());
        body(std::integral_constant<int, 2>());
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
        const int64_t rest = window_ - turned_;
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
        turned_ = (turned_ + bits) % window_;
    }

    // Minimum of 2^kBits costs starting at `first`, by a tournament in which the lower number wins ties. `chosen`
    // records the winner of each comparison.
    template <int kBits, class Cost>
    static TOPSIGN_INLINE Costs least_of(const Cost& cost, uint16_t* chosen, int first = 0) {
        if constexpr (kBits == 0) {
            return cost(first);
        } else {
            constexpr int kHalf = 1 << (kBits - 1);
            Costs least = least_of<kBits - 1>(cost, chosen, first);
            chosen[first + kHalf - 1] = Isa::take_less(least, least_of<kBits - 1>(cost, chosen, first + kHalf));
            return least;
        }
    }

    // Processes two events of kFirst and kSecond new bits, with the costs between them in registers. States consist of
    // these bits followed by m before the events, of kSecond bits, m and kFirst bits between them, and of m followed by
    // all these bits after them.
    template <int kFirst, int kSecond, class First, class Second>
    void advance_two(const First add, const Second add_next, uint16_t* chosen, uint16_t* chosen_next) {
        constexpr int kBits = kFirst + kSecond, kBefore = 1 << kFirst, kBetween = 1 << kSecond;
        const Places at = places();
        const int64_t left = states_ >> kBits;
        int64_t steps[1 << kBits];
        for (int64_t q = 0; q < 1 << kBits; ++q) steps[q] = at.of(q * left) * kEntries;
        each(kBits, [=](uint32_t* cost, int64_t m) {
            Costs between[kBetween];
#pragma GCC unroll 8
            for (int b = 0; b < kBetween; ++b)
                between[b] = least_of<kFirst>([&](int a) { return load<Costs>(cost + steps[a * kBetween + b]); },
                                              chosen + (b * left + m) * (kBefore - 1));
#pragma GCC unroll 8
            for (int a = 0; a < kBefore; ++a) {
                const int64_t next = m * kBefore + a;
                const Costs least =
                    least_of<kSecond>([&](int b) { return add(between[b], (b * left + m) * kBefore + a); },
                                      chosen_next + next * (kBetween - 1));
#pragma GCC unroll 8
                for (int b = 0; b < kBetween; ++b)
                    store(cost + steps[a * kBetween + b], add_next(least, next * kBetween + b));
            }
        });
    }

    template <int kBits, class Add>
    void advance_few(const Add add, uint16_t* chosen) {
        constexpr int kBefore = 1 << kBits;
        const Places at = places();
        int64_t steps[kBefore];
        for (int64_t q = 0; q < kBefore; ++q) steps[q] = at.of(q * (states_ >> kBits)) * kEntries;
        each(kBits, [=](uint32_t* cost, int64_t m) {
            const Costs least =
                least_of<kBits>([&](int q) { return load<Costs>(cost + steps[q]); }, chosen + m * (kBefore - 1));
#pragma GCC unroll 8
            for (int q = 0; q < kBefore; ++q) store(cost + steps[q], add(least, m * kBefore + q));
        });
    }

    // Any number of new bits.
    template <class Add>
    void advance(int bits, const Add add, uint16_t* chosen) {
        if (bits == 1) return advance_few<1>(add, chosen);
        if (bits == 2) return advance_few<2>(add, chosen);
        if (bits == 3) return advance_few<3>(add, chosen);
        if (bits == 4) return advance_few<4>(add, chosen);
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

    // The cheapest last state that is compatible with the first state.
    uint32_t state_before(int64_t r, uint32_t first) {
        const Places at = places();
        const int advance = cell_->events[0].advance;
        const uint32_t common = first >> advance;
        uint32_t best = common;
        for (uint32_t q = 1; q < 1u << advance; ++q) {
            const uint32_t state = q << (window_ - advance) | common;
            if (int32_t(at.costs_of(state)[r] - at.costs_of(best)[r]) < 0) best = state;
        }
        return best;
    }

    // Traces back the states of all events from the last state of each entry.
    void trace(int64_t begin, int64_t count, int64_t n, uint32_t* states) {
        for (int64_t step = count - 1;; --step) {
            const int64_t number = (begin + step) % int64_t(cell_->events.size());
            std::copy(states, states + n, path_.data() + number * kEntries);
            if (step == 0) return;
            const int advance = cell_->events[number].advance;
            const uint16_t* const chosen = chosen_.data() + choices_[number];
            for (int64_t r = 0; r < n; ++r) {
                const uint32_t m = states[r] >> advance;
                const uint16_t* const here = chosen + int64_t(m) * ((1 << advance) - 1);
                uint32_t q = 0;
                for (uint32_t apart = 1u << (advance - 1); apart; apart /= 2)
                    q += (here[q + apart - 1] >> r & 1u) * apart;
                states[r] = q << (window_ - advance) | m;
            }
        }
    }

    void write(int64_t r, uint8_t* code) {
        const ts_trellis& trellis = cell_->trellis;
        ring_.assign(unrolled_bytes(trellis), 0);
        for (size_t e = 0; e < cell_->events.size(); ++e) {
            const int offset = cell_->events[e].offset;
            const uint32_t bits = path_[e * kEntries + r] << (24 - trellis.window - (offset & 7));
            for (int b = 0; b < 3; ++b) ring_[(offset >> 3) + b] |= uint8_t(bits >> (16 - 8 * b));
        }
        for (int64_t bit = trellis.n_bits; bit < trellis.n_bits + trellis.window; ++bit)
            if (ring_[bit >> 3] >> (7 - (bit & 7)) & 1) {
                const int64_t at = bit - trellis.n_bits;
                ring_[at >> 3] |= uint8_t(1 << (7 - (at & 7)));
                ring_[bit >> 3] &= uint8_t(~(1 << (7 - (bit & 7))));
            }
        const int64_t n_bytes = std::min(ceil_div(trellis.n_bits, 8), trellis.code_bytes);
        std::memcpy(code, ring_.data(), n_bytes);
        std::memset(code + n_bytes, 0, trellis.code_bytes - n_bytes);  // bytes after the ring
    }

    const TrellisCosts* cell_ = nullptr;
    int64_t states_ = 0;
    int window_ = 0;
    int turned_ = 0;                // number of bits by which state numbers are rotated
    std::vector<int64_t> choices_;  // first choice of each event
    std::vector<uint16_t> chosen_;  // a bit for each entry
    std::vector<uint32_t> path_;
    std::vector<int64_t> steps_;
    Lines<uint32_t> cost_;
    Lines<int32_t> targets_;
    std::vector<uint8_t> ring_;
};

// Encodes the signals of the cells whose cost tables are in memory.
template <class Isa>
void encode_cells(int n_threads, const ts_trellis_signals* cells, std::vector<TrellisCosts>& tables, uint8_t* codes) {
    constexpr int64_t kEntries = TrellisEncoder<Isa>::kEntries;
    struct Batch {
        int64_t cell, first;
    };
    std::vector<Batch> batches, events;
    double event_cost = 0, batch_cost = 0;
    for (int64_t cell = 0; cell < int64_t(tables.size()); ++cell) {
        const TrellisCosts& table = tables[cell];
        for (int64_t e = 0; e < int64_t(table.events.size()); ++e) events.push_back({cell, e});
        for (int64_t first = 0; first < cells[cell].count; first += kEntries) batches.push_back({cell, first});
        event_cost = std::max(event_cost, 3 * double(table.n_states));
        batch_cost = std::max(batch_cost, 0.1 * kEntries * double(2 * table.events.size() * table.n_states));
    }
    parallel_items(n_threads, int64_t(events.size()), event_cost,
                   [&] { return [&](int64_t i) { tables[events[i].cell].prepare(events[i].first); }; });
    parallel_items(n_threads, int64_t(batches.size()), batch_cost, [&] {
        return [&, encoder = TrellisEncoder<Isa>()](int64_t i) mutable {
            const ts_trellis_signals& cell = cells[batches[i].cell];
            const int64_t first = batches[i].first, n = std::min(kEntries, cell.count - first);
            const ts_trellis& trellis = cell.trellis;
            encoder.enter(tables[batches[i].cell]);
            encoder.encode(cell.values + first * trellis.n_coded, n, [&](int64_t r) {
                return codes + (cell.rows ? cell.rows[first + r] : first + r) * trellis.code_bytes;
            });
            if (cell.mark)
                for (int64_t r = first; r < first + n; ++r)
                    codes[(cell.rows ? cell.rows[r] : r) * trellis.code_bytes + trellis.n_bits / 8] |=
                        uint8_t(cell.mark);
        };
    });
}

template <class Isa>
void trellis_encode(int n_threads, const ts_trellis_signals* cells, int64_t n_cells, uint8_t* codes) {
    constexpr int64_t kTableBytes = int64_t(1) << 26;  // held at a time
    for (int64_t begin = 0; begin < n_cells;) {
        std::vector<TrellisCosts> tables;
        int64_t end = begin;
        for (int64_t held = 0; end < n_cells && held < kTableBytes; ++end) {
            tables.emplace_back(cells[end].trellis, cells[end].costs);
            held += tables.back().n_bytes();
        }
        encode_cells<Isa>(n_threads, cells + begin, tables, codes);
        begin = end;
    }
}

}  // namespace
}  // namespace topsign
