// Scores of a batch of queries: codes become rows of -1, 0, 1 that the tensor cores multiply with the queries' digits.
//
// Three kernels. `list_kept` writes the locations of each code in order; `draw_bitmaps` turns them into two bitmaps of
// the pool, of positive and of negative signs; `product` widens slices of 128 rows of the pool to bytes in shared
// memory, 128 codes at a time, multiplies, and offers the sums. On Hopper (WGMMA 1) the tensor cores read both tiles from
// shared memory while the next slice is widened; elsewhere warps load fragments of them. Bitmaps stand as [tile of 128 codes][slice][code][half
// of the slice][positive, positive, negative, negative].

#define TILE 128
#define SLICE 128
#define SLICES ((N_POOL + SLICE - 1) / SLICE)
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

// One block per group of codes; the pool in windows of what fits shared memory.
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

// Codes of all signs: the positive bitmap is the code, the negative its complement.
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

#ifdef COLUMNS  // of a tile: queries times digits

#ifndef WGMMA  // Hopper's products of whole tiles in shared memory
#define WGMMA 0
#endif
#define WARPS_DOWN (WGMMA ? 8 : COLUMNS >= 192 ? 2 : COLUMNS >= 96 ? 4 : 8)
#define WARPS_ACROSS (8 / WARPS_DOWN)
#define ROWS_16 (TILE / 16 / WARPS_DOWN)
#define COLUMNS_8 (COLUMNS / 8 / WARPS_ACROSS)
#define STAGES 3

// Sums of one tile of codes with one tile of columns, in registers of 8 warps.
struct Sums {
    int sum[ROWS_16][COLUMNS_8][4];
};

#ifndef EMULATED
__device__ __forceinline__ u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }
__device__ __forceinline__ void load_matrices(u32 (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row)));
}
__device__ __forceinline__ void multiply(int (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

// Rows of 128 bytes in pieces of 16, turned by the row so that eight rows at one column lie in different banks.
__device__ __forceinline__ u32 piece_at(u32 row, u32 piece) { return row * SLICE + ((piece ^ (row & 7)) << 4); }

// Four bits as four bytes of 0 or 1; the fields of the product do not overlap.
__device__ __forceinline__ u32 spread(u32 bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

// 64 rows of the pool of one code as bytes.
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

#if WGMMA
// Where a tile of rows of 128 bytes begins, in pieces turned as above: groups of eight rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_descriptor(const void* tile) {
    return u64(1) << 62 | u64(1024 >> 4) << 32 | u64(1) << 16 | (shared_address(tile) & 0x3ffff) >> 4;
}
__device__ __forceinline__ void show_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void start_product(Sums& sums, const u8* codes, const u8* digits) {
    const u64 a = tile_descriptor(codes + threadIdx.x / 128 * (64 * SLICE)), b = tile_descriptor(digits);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (u32 step = 0; step < 4; ++step) multiply_tile(&sums.sum[0][0][0], a + step * 2, b + step * 2);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void finish_product(Sums&) { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
#else
__device__ __forceinline__ void show_writes() {}
__device__ __forceinline__ void start_product(Sums&, const u8*, const u8*) {}
__device__ __forceinline__ void multiply_warps(Sums& sums, const u8* codes, const u8* digits) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 row0 = warp % WARPS_DOWN * ROWS_16 * 16, column0 = warp / WARPS_DOWN * COLUMNS_8 * 8;
#pragma unroll
    for (u32 step = 0; step < 4; ++step) {
        u32 a[ROWS_16][4];
#pragma unroll
        for (int m = 0; m < ROWS_16; ++m)
            load_matrices(a[m], codes + piece_at(row0 + m * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < COLUMNS_8; n += 2) {
            u32 b[4];
            load_matrices(b, digits + piece_at(column0 + n * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < ROWS_16; ++m) {
                multiply(sums.sum[m][n], a[m], b[0], b[1]);
                multiply(sums.sum[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}
#endif

__device__ __forceinline__ void multiply_tiles(Sums& sums, const uint4* bitmaps, const u8* columns, u32 tile, u32 first_column) {
    u8* codes = dynamic_shared;                      // two slices of 128 codes
    u8* digits = dynamic_shared + 2 * TILE * SLICE;  // STAGES slices of the columns
    const u32 thread = threadIdx.x, padded = SLICES * SLICE;
#pragma unroll
    for (int m = 0; m < ROWS_16; ++m)
#pragma unroll
        for (int n = 0; n < COLUMNS_8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums.sum[m][n][i] = 0;
    const auto fetch = [&](u32 slice) {
        if (slice < SLICES)
            for (u32 i = thread; i < COLUMNS * 8; i += 256)
                copy_async(digits + slice % STAGES * (COLUMNS * SLICE) + piece_at(i / 8, i % 8),
                           columns + u64(first_column + i / 8) * padded + slice * SLICE + i % 8 * 16);
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
        __syncthreads();  // this slice is there, and nobody reads the one before it any more
        start_product(sums, a, b);
        fetch(slice + 2);
        if (slice + 1 < SLICES) widen(next, codes + (slice + 1) % 2 * (TILE * SLICE), thread / 2, thread % 2);
        if (slice + 2 < SLICES) next = mine[u64(slice + 2) * (TILE * 2)];
#if WGMMA
        finish_product(sums);
#else
        multiply_warps(sums, a, b);
#endif
    }
}

#define QUERIES (COLUMNS / DIGITS)
#define STRIDE (QUERIES + 8)  // floats of a row of centers, so that rows begin in different banks

// The sums as centers in shared memory, where the tiles were: (TILE, STRIDE). Digits of a query stand in neighbouring
// columns of 8. What follows is then short code: the sums in registers would need a copy of it each.
__device__ __forceinline__ float* write_centers(const Sums& sums, const float* steps, u32 first_query, u32 n_queries) {
    float* centers = reinterpret_cast<float*>(dynamic_shared);
    float* step = centers + TILE * STRIDE;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 row0 = warp % WARPS_DOWN * ROWS_16 * 16 + lane / 4;
    const u32 query0 = warp / WARPS_DOWN * (COLUMNS_8 / DIGITS) * 8 + lane % 4 * 2;
    __syncthreads();
    for (u32 i = threadIdx.x; i < QUERIES; i += 256) step[i] = first_query + i < n_queries ? steps[first_query + i] : 0.f;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < COLUMNS_8 / DIGITS; ++n) {
        const u32 query = query0 + n * 8;
        const float2 own = *reinterpret_cast<const float2*>(step + query);
#pragma unroll
        for (int row = 0; row < ROWS_16 * 2; ++row) {
            int left[DIGITS], right[DIGITS];
#pragma unroll
            for (int d = 0; d < DIGITS; ++d) {
                left[d] = sums.sum[row / 2][n * DIGITS + d][row % 2 * 2];
                right[d] = sums.sum[row / 2][n * DIGITS + d][row % 2 * 2 + 1];
            }
            *reinterpret_cast<float2*>(centers + (row0 + row * 8) * STRIDE + query) =
                make_float2(center_of(left, own.x), center_of(right, own.y));
        }
    }
    __syncthreads();
    return centers;
}

extern "C" __global__ void __launch_bounds__(256) product(const uint4* bitmaps, const u8* columns, u32 column_tiles,
                                                          CANDIDATE_PARAMETERS) {
    const Candidates to = CANDIDATES;
    const u32 tile = blockIdx.x / column_tiles, first_column = blockIdx.x % column_tiles * COLUMNS;
    const u32 first_code = tile * TILE, first_query = first_column / DIGITS;
    Sums sums;
    multiply_tiles(sums, bitmaps, columns, tile, first_column);
    const float* middles = write_centers(sums, steps, first_query, n_queries);
    float* weight = reinterpret_cast<float*>(dynamic_shared) + TILE * STRIDE;  // where the steps were
    float* bias = weight + TILE;
    if (threadIdx.x < TILE) {
        const u32 code = first_code + threadIdx.x;
        weight[threadIdx.x] = weights && code < n_codes ? weights[code] : 1.f;
        bias[threadIdx.x] = biases && code < n_codes ? biases[code] : 0.f;
    }
    __syncthreads();
    const u32 count = min(n_codes - first_code, u32(TILE));
    if (every) {  // neighbouring threads have neighbouring codes, which lie together
        const u32 row = threadIdx.x % TILE;
        for (u32 i = threadIdx.x / TILE; i < QUERIES && first_query + i < n_queries; i += 256 / TILE)
            if (row < count) keep(to, first_query + i, first_code + row, middles[row * STRIDE + i]);
        return;
    }
    for (u32 i = threadIdx.x; i < QUERIES * (256 / QUERIES > 0 ? 256 / QUERIES : 1); i += 256) {
        const u32 query = first_query + i % QUERIES;  // threads that share a query take turns with the rows
        if (query >= n_queries) continue;
        const float margin = margins[query], bar = bars[query];
#pragma unroll 4
        for (u32 row = i / QUERIES; row < count; row += 256 / QUERIES > 0 ? 256 / QUERIES : 1) {
            const float center = middles[row * STRIDE + i % QUERIES];
            if (upper(center, margin, weight[row], bias[row]) > bar) keep(to, query, first_code + row, center);
        }
    }
}

// All scores: (n_queries, n_all).
extern "C" __global__ void __launch_bounds__(256) product_all(const uint4* bitmaps, const u8* columns, u32 column_tiles,
                                                              const float* steps, const float* weights,
                                                              const float* biases, u32 n_codes, u32 n_queries,
                                                              u64 n_all, float* out) {
    const u32 tile = blockIdx.x / column_tiles, first_column = blockIdx.x % column_tiles * COLUMNS;
    const u32 first_query = first_column / DIGITS, row = threadIdx.x % TILE, code = tile * TILE + row;
    Sums sums;
    multiply_tiles(sums, bitmaps, columns, tile, first_column);
    const float* middles = write_centers(sums, steps, first_query, n_queries);
    if (code >= n_codes) return;
    const float weight = weights ? weights[code] : 1.f, bias = biases ? biases[code] : 0.f;
    for (u32 i = threadIdx.x / TILE; i < QUERIES && first_query + i < n_queries; i += 256 / TILE)
        out[u64(first_query + i) * n_all + code] = middles[row * STRIDE + i] * weight + bias;
}
#endif
