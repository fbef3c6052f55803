// Encoding trellis codes: the cheapest path through 2^window states (Viterbi), one block of threads per signal.
//
// What native/kernels/trellis_encode.h does, with the same bytes: costs are integers modulo 2^32, compared by the sign
// of their difference, and of equals the lower state wins. The ring must close: a first pass over the events around its
// beginning finds the state there, the second goes from that state to one that leads to it.
//
// An event that brings `advance` bits joins the states that differ in their first bits: state (q, m), with q of `advance`
// bits, goes to (m, j) for all j. The cheapest q of each m is chosen; its bits are kept for the way back.

#define FORBIDDEN (1u << 30)  // more than any two paths differ by
#define AT_ONCE 4             // states whose costs a thread adds up together

struct Least {
    u32 cost, state;
};

__device__ __forceinline__ Least lesser(Least one, Least other) {
    const int difference = int(other.cost - one.cost);
    return difference < 0 || (difference == 0 && other.state < one.state) ? other : one;
}

// The least of lanes whose numbers differ in the bits from `first` on.
__device__ __forceinline__ Least least_of_lanes(Least mine, u32 first) {
    for (u32 d = first; d < 32; d *= 2)
        mine = lesser(mine, Least{__shfl_xor_sync(ALL, mine.cost, d), __shfl_xor_sync(ALL, mine.state, d)});
    return mine;
}

struct Viterbi {
    const uint4* events;       // first coordinate, the one after its last, advance, first word of its choices
    const uint4* coordinates;  // scrambling, square, shifts of square (low byte) and target, scale
    u32 n_events, window;
    float limit;
    const float* values;  // coordinates of the signal
    u32* choices;
    u32* path;  // state of each event
    u32 *costs, *kept;
    const signed char* levels;

    __device__ __forceinline__ uint4 event(u32 step) const { return __ldg(events + step % n_events); }
    __device__ __forceinline__ u32 states() const { return 1u << window; }

    // Words of one bit of the choices of an event.
    __device__ __forceinline__ u32 choice_words(u32 advance) const { return max(states() >> advance, 32u) / 32; }

    // Chooses the state before for each m.
    __device__ __forceinline__ void join(uint4 event) const {
        const u32 advance = event.z, n_before = 1u << advance, left = states() >> advance;
        const u32 lane = threadIdx.x % 32, width = min(left, 32u), apart = min(32 / width, n_before);
        for (u32 first = threadIdx.x - lane; first < left; first += blockDim.x) {
            const u32 m = first + lane % width, own = lane / width % n_before;
            Least least{costs[own * left + m], own};
            for (u32 q = own + apart; q < n_before; q += apart) least = lesser(least, Least{costs[q * left + m], q});
            least = least_of_lanes(least, width);
            if (lane < width) kept[m] = least.cost;
            for (u32 bit = 0; bit < advance; ++bit) {
                const u32 word = __ballot_sync(ALL, least.state >> bit & 1);
                if (lane == bit) choices[event.w + bit * choice_words(advance) + first / 32] = word;
            }
        }
    }

    // Costs of all states: before(state), and what the event costs there.
    template <class Before>
    __device__ __forceinline__ void add_event(uint4 event, const Before& before) const {
        for (u32 first = threadIdx.x; first < states(); first += AT_ONCE * blockDim.x) {
            u32 sums[AT_ONCE] = {};
            for (u32 i = event.x; i < event.y; ++i) {
                const uint4 c = __ldg(coordinates + i);
                const u32 square_shift = c.z & 255, half = (1u << square_shift) >> 1;
                const float scaled = __ldg(values + i) * __uint_as_float(c.w);
                const int target = int(rintf(fminf(limit, fmaxf(-limit, scaled))));
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; ++k) {
                    const u32 word = (first + k * blockDim.x) << (32 - window);
                    const int level = levels[(word * c.x + c.x) >> 25];
                    sums[k] += (c.y * u32(level * level) + half) >> square_shift;
                    sums[k] -= u32(target * level) << (c.z >> 8);
                }
            }
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; ++k) {
                const u32 state = first + k * blockDim.x;
                if (state < states()) costs[state] = before(state) + sums[k];
            }
        }
    }

    // `count` events from number `begin` on, around the ring; the first state is given, or free (ALL).
    __device__ __forceinline__ void run(u32 begin, u32 count, u32 given) const {
        __syncthreads();
        add_event(event(begin), [&](u32 state) { return given == ALL || state == given ? 0 : FORBIDDEN; });
        for (u32 step = 1; step < count; ++step) {
            const uint4 now = event(begin + step);
            __syncthreads();
            join(now);
            __syncthreads();
            add_event(now, [&](u32 state) { return kept[state >> now.z]; });
        }
        __syncthreads();
    }

    // The cheapest of the `count` states that end in `common`, which has all bits but the first of a state.
    __device__ __forceinline__ u32 least_state(u32 count, u32 common) const {
        __shared__ Least parts[32];
        const u32 apart = states() / count;
        Least mine{costs[common], common};
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            const u32 state = i * apart + common;
            mine = lesser(mine, Least{costs[state], state});
        }
        mine = least_of_lanes(mine, 1);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
        __syncthreads();
        for (u32 i = 0; i < blockDim.x / 32; ++i) mine = lesser(mine, parts[i]);
        return mine.state;
    }

    // Back from the last state of a run to its step `until`, by one thread; all get the state there.
    __device__ __forceinline__ u32 trace(u32 begin, u32 count, u32 until, u32 state) const {
        __shared__ u32 found;
        if (threadIdx.x == 0) {
            for (u32 step = count - 1; step > until; --step) {
                path[(begin + step) % n_events] = state;
                const uint4 now = event(begin + step);
                const u32 m = state >> now.z;
                u32 q = 0;
                for (u32 bit = 0; bit < now.z; ++bit)
                    q |= (choices[now.w + bit * choice_words(now.z) + m / 32] >> m % 32 & 1) << bit;
                state = q << (window - now.z) | m;
            }
            path[(begin + until) % n_events] = state;
            found = state;
        }
        __syncthreads();
        return found;
    }
};

// `sources` has for each bit of a code 16 times the event whose state has it plus its place there, or ALL for none.
// Blocks take signals in turn; each has `work_words` words of `work` for its choices and its path. Shared memory:
// 6 * 2^window + 128 bytes.
extern "C" __global__ void viterbi(const uint4* events, const uint4* coordinates, const u32* sources, const u8* levels,
                                   u32 n_events, u32 window, u32 n_coded, u32 code_bytes, u32 depth, float limit,
                                   const float* values, u32 n_signals, u32* work, u64 work_words, u8* codes) {
    const u32 states = 1u << window, around = min(n_events, 2 * depth);
    u32* costs = reinterpret_cast<u32*>(dynamic_shared);
    u8* own = dynamic_shared + 6 * states;
    for (u32 i = threadIdx.x; i < 128; i += blockDim.x) own[i] = levels[i];
    u32* mine = work + blockIdx.x * work_words;
    u32* path = mine + work_words - n_events;
    for (u32 signal = blockIdx.x; signal < n_signals; signal += gridDim.x) {
        const Viterbi search{events, coordinates, n_events, window, limit, values + u64(signal) * n_coded,
                             mine,   path,        costs,    costs + states, reinterpret_cast<signed char*>(own)};
        const u32 begin = n_events - around / 2;
        search.run(begin, around, ALL);
        const u32 first = search.trace(begin, around, around / 2, search.least_state(states, 0));
        search.run(0, n_events, first);
        const u32 advance = n_events == 1 ? 0 : search.event(0).z;
        search.trace(0, n_events, 0, search.least_state(1u << advance, first >> advance));
        for (u32 byte = threadIdx.x; byte < code_bytes; byte += blockDim.x) {
            u32 bits = 0;
            for (u32 bit = 8 * byte; bit < 8 * byte + 8; ++bit) {
                const u32 source = __ldg(sources + bit);
                bits = bits << 1 | (source == ALL ? 0 : path[source / 16] >> source % 16 & 1);
            }
            codes[u64(signal) * code_bytes + byte] = u8(bits);
        }
    }
}
