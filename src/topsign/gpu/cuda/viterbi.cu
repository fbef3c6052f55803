// Encoding of trellis codes by the Viterbi algorithm: the cheapest path through 2^WINDOW states.
//
// The bytes equal those of native/kernels/trellis_encode.h: costs are integers modulo 2^32, compared by the sign of their
// difference, and ties are resolved for the lower state. The path is a ring: a first pass over the events around its
// beginning finds the state there, and the second pass goes from that state to one that leads to it.
//
// An event that adds `advance` bits merges the states that differ only in their first bits: state (q, m), with q of
// `advance` bits, goes to (m, j) for all j. The cheapest q of each m is chosen, and the results of the comparisons are
// stored for the backward pass. New states replace old ones, so that costs stay in registers: of a state's WINDOW bits,
// THREAD_BITS select the thread that has its cost, and HELD_BITS the register. After an exchange, registers are indexed by
// the first bits of a state; each event turns `advance` of them into last bits. When too few first bits are left, threads
// exchange costs through shared memory. Steps are events, or parts of events with more than four coordinates.
//
// WINDOW, BLOCK (threads per block) and SIGNALS (signals per thread) are compile-time constants.

#define FORBIDDEN (1u << 30)  // exceeds the difference of any two paths
#define HELD_BITS (WINDOW < 5 ? WINDOW : 5)
#define THREAD_BITS (WINDOW - HELD_BITS)
#define STATES (1u << WINDOW)
#define HELD (1u << HELD_BITS)
#define SHARERS (1u << THREAD_BITS)  // threads per signal
#define TEAMS (BLOCK / SHARERS)
#define TABLE (STATES / 2)  // uint4 of the costs of a step: squares in 32 bits, two pairs of levels in 16 bits each

// A step: first coordinate; event; first pair of coordinates; and in one word the bits that it adds, the bits turned since
// the last exchange, whether it begins with an exchange, its number of coordinates, and the shift of its products.
struct Step {
    uint4 packed;
    __device__ __forceinline__ u32 first() const { return packed.x; }
    __device__ __forceinline__ u32 event() const { return packed.y; }
    __device__ __forceinline__ u32 pair() const { return packed.z; }
    __device__ __forceinline__ u32 advance() const { return packed.w & 15; }
    __device__ __forceinline__ u32 turned() const { return packed.w >> 4 & 15; }
    __device__ __forceinline__ bool exchanges() const { return packed.w >> 8 & 1; }
    __device__ __forceinline__ u32 n_coordinates() const { return packed.w >> 12 & 15; }
    __device__ __forceinline__ u32 shift() const { return packed.w >> 16; }
};

// The state whose cost is in register i of a thread.
__device__ __forceinline__ u32 state_of(u32 i, u32 thread, u32 turned) {
    return (i & ((HELD >> turned) - 1)) << (THREAD_BITS + turned) | thread << turned | i >> (HELD_BITS - turned);
}

// Writes the costs of the states in each step, in the order in which threads read them; one block per step. A coordinate
// has scrambling constants, a square, the shifts of the square (low byte) and of its products, and a scale.
extern "C" __global__ void cost_tables(const uint4* steps, const uint4* coordinates, const u8* levels, uint4* out) {
    const Step step{steps[blockIdx.x]};
    u32* squares = reinterpret_cast<u32*>(out + u64(blockIdx.x) * TABLE);
    u8* pairs = reinterpret_cast<u8*>(squares + STATES);
    for (u32 at = threadIdx.x; at < STATES; at += blockDim.x) {
        const u32 i = at / SHARERS, thread = at % SHARERS;
        const u32 word = state_of(i, thread, step.turned()) << (32 - WINDOW);
        u32 square = 0;
        for (u32 c = 0; c < 4; ++c) {
            int level = 0;
            if (c < step.n_coordinates()) {
                const uint4 coordinate = coordinates[step.first() + c];
                const u32 shift = coordinate.z & 255, half = (1u << shift) >> 1;
                level = reinterpret_cast<const signed char*>(levels)[(word * coordinate.x + coordinate.x) >> 25];
                square += (coordinate.y * u32(level * level) + half) >> shift;
            }
            pairs[((c / 2 * (HELD / 8) + i / 8) * SHARERS + thread) * 16 + i % 8 * 2 + c % 2] = u8(level);
        }
        squares[(i / 4 * SHARERS + thread) * 4 + i % 4] = square;
    }
}

// Writes negated rounded coordinates of signals, in pairs of 16 bits. `pairs` has the first coordinate of each pair, and
// in the highest bit whether there is a second one.
extern "C" __global__ void round_targets(const float* values, const uint4* coordinates, const u32* pairs, u32 n_coded, u32 n_pairs,
                                         float limit, u32 n_signals, u32* targets) {
    const u64 at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= u64(n_signals) * n_pairs) return;
    const u32 pair = pairs[at % n_pairs], first = pair & 0x7fffffffu;
    u32 packed = 0;
    for (u32 c = 0; c < 1 + (pair >> 31); ++c) {
        const float scaled = values[at / n_pairs * n_coded + first + c] * __uint_as_float(coordinates[first + c].w);
        packed |= (u32(-int(rintf(fminf(limit, fmaxf(-limit, scaled))))) & 0xffff) << 16 * c;
    }
    targets[at] = packed;
}

struct Least {
    u32 cost, state;  // ALL: none
};

__device__ __forceinline__ Least lesser(Least one, Least other) {
    const int difference = int(other.cost - one.cost);
    const bool less = difference < 0 || (difference == 0 && other.state < one.state);
    return one.state == ALL || (other.state != ALL && less) ? other : one;
}

template <u32 N>
struct Number {
    static constexpr u32 value = N;
};

// Calls body with n in [FIRST, LAST] as a compile-time constant.
template <u32 FIRST, u32 LAST, class Body>
__device__ __forceinline__ void with_number(u32 n, const Body& body) {
    if constexpr (FIRST == LAST) {
        body(Number<FIRST>());
    } else if (n == FIRST) {
        body(Number<FIRST>());
    } else {
        with_number<FIRST + 1, LAST>(n, body);
    }
}

// Chooses the least of 2^ADVANCE costs for each m; returns the results of the comparisons, the last in the lowest bit.
template <u32 TURNED, u32 ADVANCE>
__device__ __forceinline__ u32 join(u32 (&costs)[HELD]) {
    constexpr u32 LOW = HELD_BITS - TURNED - ADVANCE, BEFORE = 1u << ADVANCE;
    u32 chosen = 0;
#pragma unroll
    for (u32 i = 0; i < HELD; ++i) {
        if (i >> LOW & (BEFORE - 1)) continue;
#pragma unroll
        for (u32 apart = 1; apart < BEFORE; apart *= 2)
#pragma unroll
            for (u32 q = 0; q < BEFORE; q += 2 * apart) {
                u32& cost = costs[i | q << LOW];
                const u32 difference = costs[i | (q + apart) << LOW] - cost;
                chosen = __funnelshift_l(difference, chosen, 1);
                cost += u32(min(int(difference), 0));
            }
#pragma unroll
        for (u32 q = 1; q < BEFORE; ++q) costs[i | q << LOW] = costs[i];
    }
    return chosen;
}

__device__ __forceinline__ u32 word_of(const uint4& four, u32 number) {
    return number == 0 ? four.x : number == 1 ? four.y : number == 2 ? four.z : four.w;
}

// Adds the cost of a step to each state.
template <bool SHIFTED, u32 PAIRS>
__device__ __forceinline__ void add_step(u32 (&costs)[SIGNALS][HELD], const uint4* table, const int (&targets)[SIGNALS][2], u32 shift, u32 thread) {
#pragma unroll
    for (u32 e = 0; e < HELD / 8; ++e) {
        const uint4 squares[2] = {table[2 * e * SHARERS + thread], table[(2 * e + 1) * SHARERS + thread]};
        uint4 levels[PAIRS];
#pragma unroll
        for (u32 p = 0; p < PAIRS; ++p) levels[p] = table[STATES / 4 + (p * (HELD / 8) + e) * SHARERS + thread];
#pragma unroll
        for (u32 j = 0; j < 8; ++j)
#pragma unroll
            for (u32 s = 0; s < SIGNALS; ++s) {
                u32& cost = costs[s][8 * e + j];
                cost += word_of(squares[j / 4], j % 4);
                int sum = SHIFTED ? 0 : int(cost);
#pragma unroll
                for (u32 p = 0; p < PAIRS; ++p) {
                    const int four = int(word_of(levels[p], j / 2));
                    sum = j % 2 ? __dp2a_hi(targets[s][p], four, sum) : __dp2a_lo(targets[s][p], four, sum);
                }
                cost = SHIFTED ? cost + (u32(sum) << shift) : u32(sum);
            }
    }
}

// Index of a state's cost in shared memory during an exchange: one word in 33 is unused, against bank conflicts.
__device__ __forceinline__ u32 spaced(u32 state) { return state + state / 32; }

__device__ __forceinline__ void meet_sharers() {
    if (SHARERS > 32)
        __syncthreads();
    else
        __syncwarp();
}

__device__ __forceinline__ void show_costs(const u32 (&costs)[HELD], u32 thread, u32 turned, u32* room) {
    with_number<0, HELD_BITS>(turned, [&](auto number) {
        constexpr u32 TURNED = decltype(number)::value;
        u32* mine = room + spaced(thread << TURNED);
#pragma unroll
        for (u32 i = 0; i < HELD; ++i) mine[spaced(state_of(i, 0, TURNED))] = costs[i];
    });
    meet_sharers();
}

// Redistributes costs so that registers are indexed by the first bits of states.
__device__ __forceinline__ void take_costs(u32 (&costs)[HELD], u32 thread, const u32* room) {
#pragma unroll
    for (u32 i = 0; i < HELD; ++i) costs[i] = room[spaced(thread) + spaced(state_of(i, 0, 0))];
}

// An event with more bits than registers have: thread m compares all predecessors of m and returns the first bits of the
// cheapest one.
__device__ __forceinline__ u32 join_many(u32 (&costs)[HELD], u32 thread, u32 advance, u32* room) {
    const u32 left = STATES >> advance;
    Least least{0, ALL};
    for (u32 q = 0; q < 1u << advance && thread < left; ++q) least = lesser(least, Least{room[spaced(q * left + thread)], q});
    meet_sharers();
    if (thread < left) room[thread] = least.cost;
    meet_sharers();
#pragma unroll
    for (u32 i = 0; i < HELD; ++i) costs[i] = room[state_of(i, thread, 0) >> advance];
    return least.state;
}

// Forward pass over steps `begin` to `begin + count - 1`, around the ring, of all signals. The first states are given, or
// free if `first` is null; `last` gets the cheapest of the states whose bits in `mask` equal the first bits of the first
// state, shifted by `closing`. Choices are (n_events, n_signals, SHARERS). Shared memory: two tables, and 33 words per 32
// costs.
extern "C" __global__ void __launch_bounds__(BLOCK, 512 / BLOCK) forwards(const uint4* steps, const uint4* tables, u32 n_steps, u32 begin, u32 count, const u32* targets,
                                                                u32 n_pairs, u32 n_signals, const u16* first, u32 mask, u32 closing,
                                                                u32* choices, u16* last) {
    uint4* stages = reinterpret_cast<uint4*>(dynamic_shared);
    const u32 team = threadIdx.x / SHARERS, thread = threadIdx.x % SHARERS;
    u32* room = reinterpret_cast<u32*>(stages + 2 * TABLE) + team * (STATES + STATES / 32);
    const u32 mine = (blockIdx.x * TEAMS + team) * SIGNALS;
    u32 costs[SIGNALS][HELD];
    u32 signals[SIGNALS];
#pragma unroll
    for (u32 s = 0; s < SIGNALS; ++s) signals[s] = min(mine + s, n_signals - 1);  // threads without a signal write nothing
    const auto fetch = [&](u32 number, u32 stage) {
        const uint4* from = tables + u64(number % n_steps) * TABLE;
        for (u32 i = threadIdx.x; i < TABLE; i += BLOCK) copy_async(stages + stage * TABLE + i, from + i);
        commit_copies();
    };
    fetch(begin, 0);
    u32 turned = 0;
    for (u32 number = 0; number < count; ++number) {
        const Step step{__ldg(steps + (begin + number) % n_steps)};
        int target[SIGNALS][2];
#pragma unroll
        for (u32 s = 0; s < SIGNALS; ++s) {
            const u32* pair = targets + u64(signals[s]) * n_pairs + step.pair();
            target[s][0] = int(__ldg(pair));
            target[s][1] = step.n_coordinates() > 2 ? int(__ldg(pair + 1)) : 0;
        }
        wait_copies<0>();
        __syncthreads();  // this table is loaded, and the previous one is no longer read
        if (number + 1 < count) fetch(begin + number + 1, (number + 1) % 2);
        const u32 advance = step.advance();
        if (number == 0) {
#pragma unroll
            for (u32 s = 0; s < SIGNALS; ++s) {
                const u32 given = first ? first[signals[s]] : 0;
#pragma unroll
                for (u32 i = 0; i < HELD; ++i)
                    costs[s][i] = !first || state_of(i, thread, step.turned()) == given ? 0 : FORBIDDEN;
            }
        } else if (advance) {
            u32 chosen[SIGNALS];
            if (step.exchanges()) {
#pragma unroll
                for (u32 s = 0; s < SIGNALS; ++s) {
                    show_costs(costs[s], thread, turned, room);
                    if (advance > HELD_BITS)
                        chosen[s] = join_many(costs[s], thread, advance, room);
                    else
                        take_costs(costs[s], thread, room);
                    meet_sharers();
                }
            }
            if (advance <= HELD_BITS)
                with_number<1, HELD_BITS>(advance, [&](auto bits) {
                    constexpr u32 BITS = decltype(bits)::value;
                    with_number<0, HELD_BITS - BITS>(step.turned() - advance, [&](auto already) {
                        constexpr u32 ALREADY = decltype(already)::value;
#pragma unroll
                        for (u32 s = 0; s < SIGNALS; ++s) chosen[s] = join<ALREADY, BITS>(costs[s]);
                    });
                });
#pragma unroll
            for (u32 s = 0; s < SIGNALS; ++s)
                if (mine + s < n_signals) choices[(u64(step.event()) * n_signals + mine + s) * SHARERS + thread] = chosen[s];
        }
        turned = step.turned();
        const uint4* table = stages + number % 2 * TABLE;
        const bool two = step.n_coordinates() > 2;
        if (step.shift() == 0 && !two)
            add_step<false, 1>(costs, table, target, 0, thread);
        else if (step.shift() == 0)
            add_step<false, 2>(costs, table, target, 0, thread);
        else
            add_step<true, 2>(costs, table, target, step.shift(), thread);
    }
#pragma unroll
    for (u32 s = 0; s < SIGNALS; ++s) {
        const u32 common = first ? u32(first[signals[s]]) >> closing & mask : 0;
        Least least{0, ALL};
#pragma unroll
        for (u32 i = 0; i < HELD; ++i) {
            const u32 state = state_of(i, thread, turned);
            if ((state & mask) == common) least = lesser(least, Least{costs[s][i], state});
        }
#pragma unroll
        for (u32 d = 1; d < SHARERS && d < 32; d *= 2)
            least = lesser(least, Least{__shfl_xor_sync(ALL, least.cost, d), __shfl_xor_sync(ALL, least.state, d)});
        if (SHARERS > 32) {
            __shared__ Least parts[BLOCK / 32];
            __syncthreads();
            if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = least;
            __syncthreads();
            for (u32 w = 0; w < SHARERS / 32; ++w) least = lesser(least, parts[team * (SHARERS / 32) + w]);
        }
        if (thread == 0 && mine + s < n_signals) last[mine + s] = u16(least.state);
    }
}

// Backward pass from the last of `count` events to number `until`; one thread per signal. An event has its advance, and
// in the second byte the bits turned after it. `path` (n_events, n_signals) gets the states, and `first`, which may be
// `last`, the state reached.
extern "C" __global__ void backwards(const u32* events, u32 n_events, u32 begin, u32 count, u32 until, u32 n_signals,
                                     const u32* choices, const u16* last, u16* path, u16* first) {
    const u32 signal = blockIdx.x * blockDim.x + threadIdx.x;
    if (signal >= n_signals) return;
    u32 state = last[signal];
    for (u32 step = count - 1;; --step) {
        const u64 at = u64((begin + step) % n_events) * n_signals + signal;
        path[at] = u16(state);
        if (step == until) break;
        const u32 event = __ldg(events + (begin + step) % n_events), advance = event & 255, turned = event >> 8;
        const u32 m = state >> advance;
        u32 q = 0;
        if (advance > HELD_BITS) {
            q = choices[at * SHARERS + m];
        } else {
            const u32 i = (state >> (THREAD_BITS + turned) & ((HELD >> turned) - 1)) | (state & ((1u << turned) - 1)) << (HELD_BITS - turned);
            const u32 low = HELD_BITS - turned, chosen = choices[at * SHARERS + (state >> turned & (SHARERS - 1))];
            // Comparisons of m are consecutive bits, those of neighbours first; the last in the lowest bit.
            const u32 number = (i >> (low + advance)) << low | (i & ((1u << low) - 1)), size = 1u << advance;
            const u32 final = HELD - (HELD >> advance) - 1, own = number * (size - 1);
            for (u32 level = advance; level-- > 0;)
                q += (chosen >> (final - (own + size - (size >> level) + (q >> (level + 1)))) & 1) << level;
        }
        state = q << (WINDOW - advance) | m;
    }
    first[signal] = u16(state);
}

// Writes the bytes of codes from the states of events. `sources` has 16 * event + bit of its state for each bit of a code,
// or ALL.
extern "C" __global__ void write_codes(const u32* sources, const u16* path, u32 n_signals, u32 code_bytes, u8* codes) {
    const u64 at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= u64(n_signals) * code_bytes) return;
    const u32 signal = at % n_signals, byte = at / n_signals;
    u32 bits = 0;
    for (u32 bit = 8 * byte; bit < 8 * byte + 8; ++bit) {
        const u32 source = __ldg(sources + bit);
        bits = bits << 1 | (source == ALL ? 0 : path[u64(source / 16) * n_signals + signal] >> source % 16 & 1);
    }
    codes[u64(signal) * code_bytes + byte] = u8(bits);
}
