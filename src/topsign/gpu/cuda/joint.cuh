// Sums of up to 16 queries with codes whose windows advance by STEP bits every four coordinates: one look-up by the SPAN
// bits that four windows cover returns four levels.
//
// Multipliers and addends repeat after 256 coordinates, so there are 64 tables. Those of one word of a code are in shared
// memory at a time (a phase; word j has phase j % PHASES), while all such words of CODES codes per thread are summed. With
// one query (QUERIES 1), each thread sums its own codes, which was faster than tensor cores. For 8 or 16 queries, a warp
// looks up levels in the order of the operands of tensor cores: in a product, lane 4 r + t has row r, the fours t and
// t + 4 of eight, and columns 2 t and 2 t + 1.

#define SUM_PARAMETERS const uint4 *tables, const int *queries
#define SUMMER Summer{tables, queries}
#define SPAN (WINDOW + STEP - 1)
#define FOURS (32 / STEP)   // groups of four coordinates per word
#define EIGHTS (FOURS / 8)  // groups of eight fours, the depth of a product
#define EIGHT_QUERIES (QUERIES / 8)  // 0: one query
#define PHASES (2 * STEP)
#define N_FOURS ((N_POOL + 3) / 4)
#define N_WORDS ((N_FOURS + FOURS - 1) / FOURS)
#define JOINT_BYTES (FOURS << (SPAN + 2))

// The four levels of group `four` of a word `near`, which is followed by `far`.
__device__ __forceinline__ u32 four_levels(u32 near, u32 far, u32 four) {
    const u32 bits = __funnelshift_l(far, near, four * STEP);
    const u32 at = (bits >> (30 - SPAN) & ((4u << SPAN) - 4)) | four << (SPAN + 2);
    return *reinterpret_cast<const u32*>(dynamic_shared + at);
}

// Loads the tables of a phase into shared memory, and after them value(word, i) for i < FOURS * QUERIES of its words;
// returns the address of the values. Called by the whole block.
template <class Value>
__device__ __forceinline__ const int* start_phase(u32 phase, const uint4* tables, const Value& value) {
    int* values = reinterpret_cast<int*>(dynamic_shared + JOINT_BYTES);
    __syncthreads();  // the previous phase is no longer read
    for (u32 i = threadIdx.x; i < JOINT_BYTES / 16; i += blockDim.x)
        copy_async(dynamic_shared + 16 * i, tables + phase * (JOINT_BYTES / 16) + i);
    commit_copies();
    for (u32 i = threadIdx.x; i < (N_WORDS - phase + PHASES - 1) / PHASES * FOURS * QUERIES; i += blockDim.x)
        values[i] = value(phase + i / (FOURS * QUERIES) * PHASES, i % (FOURS * QUERIES));
    wait_copies<0>();
    __syncthreads();
    return values;
}

#if EIGHT_QUERIES == 0
struct Summer {
    const uint4* tables;  // (PHASES, FOURS, 2^SPAN) words of four levels
    const int* queries;   // words of four coordinates

    // Calls use(code, 0, sum).
    template <class Use>
    __device__ __forceinline__ void for_each_sum(const u32* stripes, u32 n_codes, const Use& use) const {
        for (u32 start = blockIdx.x * blockDim.x * CODES; start < n_codes; start += gridDim.x * blockDim.x * CODES) {
            const u32 first = start + threadIdx.x;
            int sums[CODES] = {};
            for (u32 phase = 0; phase < PHASES && phase < N_WORDS; ++phase) {
                const int* values = start_phase(phase, tables, [&](u32 word, u32 i) {
                    const u32 four = word * FOURS + i;
                    return four < N_FOURS ? queries[four] : 0;
                });
                const u32 n_words = (N_WORDS - phase + PHASES - 1) / PHASES;
#pragma unroll
                for (u32 c = 0; c < CODES; ++c) {
                    const u32* code = code_at(stripes, min(first + c * blockDim.x, n_codes - 1)) + phase * GROUP;
                    for (u32 word = 0; word < n_words; ++word, code += PHASES * GROUP) {
                        const u32 near = code[0], far = phase + word * PHASES + 1 < CODE_WORDS ? code[GROUP] : 0;
#pragma unroll
                        for (u32 four = 0; four < FOURS; ++four)
                            sums[c] = __dp4a(int(four_levels(near, far, four)), values[word * FOURS + four], sums[c]);
                    }
                }
            }
#pragma unroll
            for (u32 c = 0; c < CODES; ++c)
                if (first + c * blockDim.x < n_codes) use(first + c * blockDim.x, 0, sums + c);
        }
    }
};
#else
struct Summer {
    const uint4* tables;  // (PHASES, FOURS, 2^SPAN) words of four levels
    const int* queries;   // [four coordinates][query]

    // Calls use(code, query, sums) with the sums of the digits of each query.
    template <class Use>
    __device__ __forceinline__ void for_each_sum(const u32* stripes, u32 n_codes, const Use& use) const {
        const u32 lane = threadIdx.x % 32, row = lane / 4, place = lane % 4;
        for (u32 start = blockIdx.x * blockDim.x * CODES; start < n_codes; start += gridDim.x * blockDim.x * CODES) {
            const u32 first = start + threadIdx.x / 32 * 32;
            int sums[CODES][2][EIGHT_QUERIES][4];
#pragma unroll
            for (u32 i = 0; i < CODES * 2 * EIGHT_QUERIES * 4; ++i) (&sums[0][0][0][0])[i] = 0;
            for (u32 phase = 0; phase < PHASES && phase < N_WORDS; ++phase) {
                // [word][eight fours][lane][eight queries][2]
                const int* values = start_phase(phase, tables, [&](u32 word, u32 i) {
                    const u32 owner = i / (EIGHT_QUERIES * 2) % 32;
                    const u32 four = word * FOURS + i / (8 * QUERIES) * 8 + i % 2 * 4 + owner % 4;
                    return four < N_FOURS ? queries[four * QUERIES + i / 2 % EIGHT_QUERIES * 8 + owner / 4] : 0;
                });
                const u32 n_words = (N_WORDS - phase + PHASES - 1) / PHASES;
                for (u32 word = 0; word < n_words; ++word) {
                    u32 own[EIGHTS][EIGHT_QUERIES][2];
#pragma unroll
                    for (u32 i = 0; i < EIGHTS * EIGHT_QUERIES * 2; ++i)
                        (&own[0][0][0])[i] = values[((word * EIGHTS + i / (EIGHT_QUERIES * 2)) * 32 + lane) * (EIGHT_QUERIES * 2) + i % (EIGHT_QUERIES * 2)];
#pragma unroll
                    for (u32 c = 0; c < CODES; ++c)
                        add_word(stripes, min(first + c * blockDim.x, n_codes - 1) / 32 * 32 + row, phase + word * PHASES, place, own, sums[c]);
                }
            }
#pragma unroll
            for (u32 i = 0; i < CODES * 4; ++i) {
                const u32 code = first + i / 4 * blockDim.x + i % 4 * 8 + row;
                if (code >= n_codes) continue;
#pragma unroll
                for (u32 q = 0; q < EIGHT_QUERIES; ++q) {
                    const int* two = sums[i / 4][i % 4 / 2][q] + i % 2 * 2;
                    if (FEW_DIGITS == 2) {
                        use(code, q * 4 + place, two);
                    } else {
                        use(code, q * 8 + 2 * place, two);
                        use(code, q * 8 + 2 * place + 1, two + 1);
                    }
                }
            }
        }
    }

    // Adds one word of the 32 codes of a group; `code` is the first code of this lane.
    static __device__ __forceinline__ void add_word(const u32* stripes, u32 code, u32 word, u32 place, const u32 (&own)[EIGHTS][EIGHT_QUERIES][2],
                                                    int (&sums)[2][EIGHT_QUERIES][4]) {
        const u32* at = code_at(stripes, code) + word * GROUP;
        u32 near[4], far[4];
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            near[r] = at[8 * r];
            far[r] = word + 1 < CODE_WORDS ? at[8 * r + GROUP] : 0;
        }
#pragma unroll
        for (u32 eight = 0; eight < EIGHTS; ++eight)
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                u32 levels[4];  // of rows r and r + 8, fours t; the same rows, fours t + 4
#pragma unroll
                for (u32 i = 0; i < 4; ++i)
                    levels[i] = four_levels(near[2 * half + i % 2], far[2 * half + i % 2], eight * 8 + i / 2 * 4 + place);
#pragma unroll
                for (u32 q = 0; q < EIGHT_QUERIES; ++q) multiply(sums[half][q], levels, own[eight][q][0], own[eight][q][1]);
            }
    }
};
#endif
