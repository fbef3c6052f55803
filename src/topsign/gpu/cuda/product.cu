// Sums of a batch of queries: tiles of 128 codes are decoded to bytes and multiplied by tensor cores, 128 coordinates (a
// slice) at a time.
//
// A value of a query is 256 * high + low with two signed bytes, so sums are exact. Columns are the digits of the queries:
// the high digits of eight queries, then their low digits, and so on. On Hopper (WGMMA 1) the tensor cores read both tiles
// from shared memory while the next slice is decoded; on other devices, warps load fragments. QUERIES (per tile) is a
// compile-time constant.

#define TILE 128
#define SLICE 128
#define SLICES ((WIDTH + SLICE - 1) / SLICE)
#define SLOTS (SLICES <= 4 ? SLICES : 2)  // decoded slices in shared memory; if all fit, they stay for all columns
#define COLUMNS (2 * QUERIES)
#define STAGES 3
#define WARPS_DOWN (WGMMA ? 8 : COLUMNS >= 192 ? 2 : COLUMNS >= 96 ? 4 : 8)
#define ROWS_16 (TILE / 16 / WARPS_DOWN)
#define COLUMNS_8 (COLUMNS / 8 / (8 / WARPS_DOWN))
#define STRIDE (QUERIES + 9)  // integers per row of sums; rows begin in different banks

// Writes the digits of a query (x) to its columns, which are SLICES * SLICE bytes long; other bytes are zero.
extern "C" __global__ void split_queries(const short* queries, u8* columns) {
    const u32 query = blockIdx.x;
    u8* high = columns + u64(query / 8 * 16 + query % 8) * (SLICES * SLICE);
    for (u32 i = threadIdx.x; i < WIDTH; i += blockDim.x) {
        const int value = queries[u64(query) * WIDTH + i];
        high[i] = u8((value + 128) >> 8);
        high[8 * SLICES * SLICE + i] = u8(value);
    }
}

// Swizzled rows of 128 bytes: pieces of 16 are permuted by the row, so that eight rows of a column use different banks.
__device__ __forceinline__ u32 piece_at(u32 row, u32 piece) { return row * SLICE + ((piece ^ (row & 7)) << 4); }

struct Rows {
    const u8* planes;
    const uint4* coordinates;   // of rings: step, first level and dimensions of each coordinate
    const signed char* levels;  // of rings: codebooks; of kept codes: rows of SLICES * SLICE levels
};

// Expands four bits to four bytes of -1 or 1.
__device__ __forceinline__ u32 signs_of(u32 bits) {
    return ((bits & 15) * 0x00204081u & 0x01010101u) + ((~bits & 15) * 0x00204081u & 0x01010101u) * 255;
}

// Bytes of half a slice of signs or groups, which are read while the slice before is decoded. Rings and kept codes are read
// when they are decoded.
#define HELD_BYTES (KIND == SIGNS ? 8 : 4)
struct Held {
    u32 bytes[HELD_BYTES];
};

__device__ __forceinline__ void read_slice(Held& held, const u8* code, u32 slice) {
#if KIND == SIGNS || KIND == GROUPS
    const u32 first = slice * 2 * HELD_BYTES + threadIdx.x / TILE * HELD_BYTES;
    code += first * 32;
#pragma unroll
    for (u32 b = 0; b < HELD_BYTES; ++b)
        held.bytes[b] = DATA_BYTES % (2 * HELD_BYTES) == 0 || first + b < DATA_BYTES ? __ldg(code + b * 32) : 0;
#endif
}

// Decodes half a slice of a code per thread.
__device__ __forceinline__ void decode_slice(const Held& held, const Rows& rows, u32 code, u32 slice, u8* slot) {
    const u32 row = threadIdx.x % TILE, half = threadIdx.x / TILE;
#if KIND == RING
    const u8* bytes = code_at(rows.planes, code);
    u32 step = ALL, window = 0;
#endif
#pragma unroll
    for (u32 piece = 0; piece < 4; ++piece) {
        const u32 begin = slice * SLICE + half * 64 + piece * 16;  // first coordinate
        uint4 levels = make_uint4(0, 0, 0, 0);
#if KIND == SIGNS
        const u32 low = held.bytes[2 * piece], high = held.bytes[2 * piece + 1];
        levels = make_uint4(signs_of(low), signs_of(low >> 4), signs_of(high), signs_of(high >> 4));
#elif KIND == GROUPS
        const u32 byte = held.bytes[piece];
        const u64 low = u64(byte & 8 ? 1 : 255) << (byte & 7) * 8, high = u64(byte & 128 ? 1 : 255) << (byte >> 4 & 7) * 8;
        levels = make_uint4(u32(low), u32(low >> 32), u32(high), u32(high >> 32));
#elif KIND == RING
        u32 words[4] = {};
#pragma unroll
        for (u32 i = 0; i < 16; ++i) {
            if (begin + i >= WIDTH) break;
            const uint4 place = __ldg(rows.coordinates + begin + i);
            if (place.x != step) {
                step = place.x;
                const u32 byte = bytes[step / 2 * 32];
                window = step % 2 ? byte : (bytes[(step ? step / 2 - 1 : DATA_BYTES - 1) * 32] & 15u) << 4 | byte >> 4;
            }
            words[i / 4] |= u32(u8(__ldg(rows.levels + place.y + window * place.z))) << i % 4 * 8;
        }
        levels = make_uint4(words[0], words[1], words[2], words[3]);
#else
        levels = *reinterpret_cast<const uint4*>(rows.levels + u64(code) * (SLICES * SLICE) + begin);
#endif
        *reinterpret_cast<uint4*>(slot + piece_at(row, half * 4 + piece)) = levels;
    }
}

// Sums of one tile of codes with one tile of columns, in registers of 8 warps.
struct Sums {
    int sum[ROWS_16][COLUMNS_8][4];
};

// Start and finish a product of 128 codes and all columns, 128 bytes deep.
#if WGMMA
// Matrix descriptor of a tile of swizzled rows; groups of eight rows are 1024 bytes apart.
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
__device__ __forceinline__ void finish_product(Sums&, const u8*, const u8*) { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
#else
#ifndef EMULATED
__device__ __forceinline__ void load_matrices(u32 (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row)));
}
// Adds the product of 16 rows and 8 columns, 32 bytes deep, to sums.
__device__ __forceinline__ void multiply(int (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
__device__ __forceinline__ void show_writes() {}
__device__ __forceinline__ void start_product(Sums&, const u8*, const u8*) {}
__device__ __forceinline__ void finish_product(Sums& sums, const u8* codes, const u8* digits) {
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

// Computes the sums of a tile of codes and a tile of columns; `again`: the codes were already decoded for other columns.
__device__ __forceinline__ void multiply_tiles(Sums& sums, const Rows& rows, u32 n_codes, const u8* columns, u32 tile, bool again) {
    u8 *slots = dynamic_shared, *digits = dynamic_shared + SLOTS * TILE * SLICE;  // STAGES slices of the columns
    const bool decodes = !again || SLICES > SLOTS;
    const u32 code = min(tile * TILE + threadIdx.x % TILE, n_codes - 1);
#pragma unroll
    for (int m = 0; m < ROWS_16; ++m)
#pragma unroll
        for (int n = 0; n < COLUMNS_8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums.sum[m][n][i] = 0;
    // A thread copies the same piece of every 32nd column, so its addresses differ by constants.
    const u32 first = threadIdx.x / 8, own = piece_at(first, threadIdx.x % 8);
    const u8* source = columns + u64(first) * (SLICES * SLICE) + threadIdx.x % 8 * 16;
    const auto fetch = [&](u32 slice) {
        if (slice < SLICES) {
            u8* to = digits + slice % STAGES * (COLUMNS * SLICE) + own;
#pragma unroll
            for (u32 column = 0; column < COLUMNS; column += 32)
                if (COLUMNS % 32 == 0 || first < COLUMNS)
                    copy_async(to + column * SLICE, source + slice * SLICE + u64(column) * (SLICES * SLICE));
        }
        commit_copies();
    };
    const u8* bytes = code_at(rows.planes, code);
    Held held = {};
    fetch(0);
    fetch(1);
    if (decodes) {
        read_slice(held, bytes, 0);
        decode_slice(held, rows, code, 0, slots);
        if (SLICES > 1) read_slice(held, bytes, 1);
    }
    for (u32 slice = 0; slice < SLICES; ++slice) {
        const u8 *a = slots + slice % SLOTS * (TILE * SLICE), *b = digits + slice % STAGES * (COLUMNS * SLICE);
        wait_copies<1>();
        show_writes();
        __syncthreads();  // this slice is loaded, and the previous one is no longer read
        start_product(sums, a, b);
        fetch(slice + 2);
        if (decodes && slice + 1 < SLICES) {
            decode_slice(held, rows, code, slice + 1, slots + (slice + 1) % SLOTS * (TILE * SLICE));
            if (slice + 2 < SLICES) read_slice(held, bytes, slice + 2);
        }
        finish_product(sums, a, b);
    }
}

// A block has one tile of codes and every `across`-th tile of queries.
extern "C" __global__ void __launch_bounds__(256) scan_products(const uint4* coordinates, const signed char* levels, const u8* columns,
                                                                u32 n_tiles, u32 across, TARGET_PARAMETERS) {
    const Target to = TARGET;
    const u32 tile = blockIdx.x / across, row = threadIdx.x % TILE, code = tile * TILE + row;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int* shown = reinterpret_cast<int*>(dynamic_shared + SLOTS * TILE * SLICE);  // (TILE, STRIDE), in place of the digits
    const float factor = code < n_codes ? to.factor(code) : 0.f;
    for (u32 column = blockIdx.x % across; column < n_tiles; column += across) {
        Sums sums;
        const u8* mine = columns + u64(column) * COLUMNS * (SLICES * SLICE);
        multiply_tiles(sums, Rows{planes, coordinates, levels}, n_codes, mine, tile, column >= across);
        __syncthreads();
        const u32 row0 = warp % WARPS_DOWN * ROWS_16 * 16 + lane / 4, query0 = warp / WARPS_DOWN * COLUMNS_8 * 4 + lane % 4 * 2;
#pragma unroll
        for (int m = 0; m < ROWS_16; ++m)
#pragma unroll
            for (int n = 0; n < COLUMNS_8; n += 2)
#pragma unroll
                for (int i = 0; i < 4; ++i)  // the sum fits in 32 bits, even if the product does not
                    shown[(row0 + m * 16 + i / 2 * 8) * STRIDE + query0 + n * 4 + i % 2] = int(u32(sums.sum[m][n][i]) * 256 + u32(sums.sum[m][n + 1][i]));
        __syncthreads();
        for (u32 i = threadIdx.x / TILE; i < QUERIES && column * QUERIES + i < n_queries; i += 256 / TILE)
            if (code < n_codes) to.report(column * QUERIES + i, code, shown[row * STRIDE + i], factor);
        __syncthreads();  // the next columns reuse this memory
    }
}

// Decodes kept codes to rows of SLICES * SLICE levels; one warp per block of 32 codes.
extern "C" __global__ void decode_kept(const u8* planes, u32 n_codes, u8* rows) {
#if KIND == KEPT
    const u32 block = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, code = block * 32 + lane;
    if (block * 32 >= n_codes) return;
    uint4* first = reinterpret_cast<uint4*>(rows + u64(block) * 32 * (SLICES * SLICE));
    for (u32 i = lane; i < 2 * SLICES * SLICE; i += 32) first[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    u8* mine = rows + u64(code) * (SLICES * SLICE);
    if (code < n_codes) for_each_kept(code_at(planes, code), [&](u32 location, u32 positive) { mine[location] = positive ? 1 : 255; });
#endif
}
