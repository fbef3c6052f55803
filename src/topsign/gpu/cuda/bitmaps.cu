// Adaptive codes as rows of -1, 0 and 1.
//
// `list_kept` writes the locations of each code; `draw_bitmaps` converts them to two bitmaps of the pool, of positive and
// of negative signs; `multiply_tiles` expands slices of 128 rows of the pool to bytes in shared memory, for 128 codes at a
// time, and multiplies them (on Hopper while the next slice is expanded). The layout of bitmaps is [tile of 128 codes]
// [slice][code][half of the slice][positive, positive, negative, negative].

#define SLICE_WORDS 8

#if N_POOL <= 32768
typedef u16 Kept;
#define POSITIVE 0x8000u
#else
typedef u32 Kept;
#define POSITIVE 0x80000000u
#endif

extern "C" __global__ void list_kept(const u32* stripes, u32 n_codes, Kept* kept) {
    const u32 group = (blockIdx.x * blockDim.x + threadIdx.x) / GROUP, lane = threadIdx.x % GROUP;
    if (SIGNS || group * GROUP >= n_codes) return;
    Kept* out = kept + u64(group) * N_BITS * GROUP + lane;
    if (group * GROUP + lane >= n_codes) {
        for (u32 i = 0; i < N_BITS; ++i) out[i * GROUP] = 0;
        return;
    }
    for_each_kept(code_at(stripes, group * GROUP + lane),
                  [&](u32 location, u32 negative, u32 rank) { out[rank * GROUP] = Kept(location | (~negative & POSITIVE)); });
}

#define WINDOW_SLICES (SLICES < 64 ? SLICES : 64)
#define WINDOW_STRIDE (WINDOW_SLICES * SLICE_WORDS + 1)

#define PER_LOAD (16 / sizeof(Kept))
#define LOADS (N_BITS * GROUP / PER_LOAD)
#define UNROLLED 4

// One block per group of codes; the pool is divided into windows that fit in shared memory.
extern "C" __global__ void draw_bitmaps(const Kept* kept, u32* bitmaps) {
    u32* window = reinterpret_cast<u32*>(dynamic_shared);
    const u32 group = blockIdx.x;
    const uint4* loads = reinterpret_cast<const uint4*>(kept + u64(group) * N_BITS * GROUP);
    for (u32 first = 0; first < SLICES; first += WINDOW_SLICES) {
        for (u32 i = threadIdx.x; i < GROUP * WINDOW_STRIDE; i += blockDim.x) window[i] = 0;
        __syncthreads();
        for (u32 start = threadIdx.x; start < LOADS; start += UNROLLED * blockDim.x) {
            uint4 loaded[UNROLLED];
#pragma unroll
            for (u32 u = 0; u < UNROLLED; ++u)
                if (start + u * blockDim.x < LOADS) loaded[u] = loads[start + u * blockDim.x];
#pragma unroll
            for (u32 u = 0; u < UNROLLED; ++u) {
                if (start + u * blockDim.x >= LOADS) break;
                const u32 words[4] = {loaded[u].x, loaded[u].y, loaded[u].z, loaded[u].w};
#pragma unroll
                for (u32 p = 0; p < PER_LOAD; ++p) {
                    const u32 entry = sizeof(Kept) == 2 ? words[p / 2] >> p % 2 * 16 & 0xffff : words[p % 4];
                    const u32 row = entry & (POSITIVE - 1), slice = row / SLICE - first;
                    const u32 code = (start + u * blockDim.x) % (GROUP / PER_LOAD) * PER_LOAD + p;
                    const u32 word = slice * SLICE_WORDS + row / 64 % 2 * 4 + (entry & POSITIVE ? 0 : 2) + row / 32 % 2;
                    if (slice < WINDOW_SLICES) atomicOr(&window[code * WINDOW_STRIDE + word], 1u << row % 32);
                }
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < WINDOW_SLICES * GROUP * SLICE_WORDS; i += blockDim.x) {
            const u32 slice = i / (GROUP * SLICE_WORDS), code = i / SLICE_WORDS % GROUP, word = i % SLICE_WORDS;
            const u64 tile = group / (TILE / GROUP), row = group % (TILE / GROUP) * GROUP + code;
            if (first + slice < SLICES)
                bitmaps[((tile * SLICES + first + slice) * TILE + row) * SLICE_WORDS + word] =
                    window[code * WINDOW_STRIDE + slice * SLICE_WORDS + word];
        }
        __syncthreads();
    }
}

// Sign codes: the positive bitmap is the code, the negative one its complement.
extern "C" __global__ void draw_signs(const u32* stripes, u32* bitmaps) {
    const u32 lane = threadIdx.x % GROUP, group = blockIdx.x;
    const u64 tile = group / (TILE / GROUP), row = group % (TILE / GROUP) * GROUP + lane;
    for (u32 j = threadIdx.x / GROUP; j < SLICES * 4; j += blockDim.x / GROUP) {
        const u32 signs = j < SIGN_WORDS ? stripes[(u64(group) * CODE_WORDS + j) * GROUP + lane] : 0;
        const u32 valid = j * 32 + 32 <= N_POOL ? ALL : j * 32 < N_POOL ? (1u << (N_POOL - j * 32) % 32) - 1 : 0;
        u32* out = bitmaps + ((tile * SLICES + j / 4) * TILE + row) * SLICE_WORDS + j / 2 % 2 * 4 + j % 2;
        out[0] = signs & valid;
        out[2] = ~signs & valid;
    }
}

typedef const uint4* Rows;
#define ROW_PARAMETERS const uint4* bitmaps
#define ROWS bitmaps
#define ROW_BYTES 0  // shared memory that rows occupy throughout

#ifdef COLUMNS
// Expands four bits to four bytes of 0 or 1; the fields of the product do not overlap.
__device__ __forceinline__ u32 spread(u32 bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

// Expands 64 rows of the pool of one code to bytes.
__device__ __forceinline__ void widen(uint4 bitmaps, u8* tile, u32 code, u32 half) {
    const u32 positive[2] = {bitmaps.x, bitmaps.y}, negative[2] = {bitmaps.z, bitmaps.w};
#pragma unroll
    for (u32 piece = 0; piece < 4; ++piece) {
        u32 words[4];
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
            const u32 shift = piece % 2 * 16 + w * 4;
            words[w] = spread(positive[piece / 2] >> shift) + spread(negative[piece / 2] >> shift) * 255;
        }
        *reinterpret_cast<uint4*>(tile + piece_at(code, half * 4 + piece)) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

__device__ __forceinline__ void multiply_tiles(Sums& sums, Rows bitmaps, u32, const u8* columns, u32 tile, u32 first_column, bool) {
    u8* codes = dynamic_shared;                      // two slices of 128 codes
    u8* digits = dynamic_shared + 2 * TILE * SLICE;  // STAGES slices of the columns
    const u32 thread = threadIdx.x, padded = SLICES * SLICE;
    clear(sums);
    const auto fetch = [&](u32 slice) {
        if (slice < SLICES)
            fetch_columns(digits + slice % STAGES * (COLUMNS * SLICE), columns + u64(first_column) * padded + slice * SLICE, padded);
        commit_copies();
    };
    const uint4* mine = bitmaps + u64(tile) * SLICES * (TILE * 2) + thread;
    fetch(0);
    fetch(1);
    widen(mine[0], codes, thread / 2, thread % 2);
    uint4 next = SLICES > 1 ? mine[TILE * 2] : make_uint4(0, 0, 0, 0);
    for (u32 slice = 0; slice < SLICES; ++slice) {
        const u8 *a = codes + slice % 2 * (TILE * SLICE), *b = digits + slice % STAGES * (COLUMNS * SLICE);
        wait_copies<1>();
        show_writes();
        __syncthreads();  // this slice is loaded, and the previous one is no longer read
        start_product(sums, a, b);
        fetch(slice + 2);
        if (slice + 1 < SLICES) widen(next, codes + (slice + 1) % 2 * (TILE * SLICE), thread / 2, thread % 2);
        if (slice + 2 < SLICES) next = mine[u64(slice + 2) * (TILE * 2)];
        finish_product(sums, a, b);
    }
}
#endif
