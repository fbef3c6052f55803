// Products of tiles of 128 rows of bytes and the columns of a batch of queries, 128 bytes deep at a time.
//
// On Hopper (WGMMA 1), the tensor cores read both tiles from shared memory; on other devices, warps load fragments.

#define TILE 128
#define SLICE 128
#define SLICES ((N_POOL + SLICE - 1) / SLICE)

#ifdef COLUMNS  // of a tile: queries times digits

#ifndef WGMMA  // wgmma instructions of Hopper
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
__device__ __forceinline__ void load_matrices(u32 (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row)));
}
#endif

// Swizzled rows of 128 bytes: pieces of 16 are permuted by the row, so that eight rows of a column use different banks.
__device__ __forceinline__ u32 piece_at(u32 row, u32 piece) { return row * SLICE + ((piece ^ (row & 7)) << 4); }

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (int m = 0; m < ROWS_16; ++m)
#pragma unroll
        for (int n = 0; n < COLUMNS_8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums.sum[m][n][i] = 0;
}

// Starts an asynchronous copy of a slice of the columns, which are `padded` bytes apart.
__device__ __forceinline__ void fetch_columns(u8* to, const u8* columns, u32 padded) {
    for (u32 i = threadIdx.x; i < COLUMNS * 8; i += 256)
        copy_async(to + piece_at(i / 8, i % 8), columns + u64(i / 8) * padded + i % 8 * 16);
}

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
#endif
