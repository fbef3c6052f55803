// Trellis codes as rows of levels.
//
// `multiply_tiles` expands slices of 128 coordinates of 128 codes to levels in shared memory, while the tensor cores
// multiply the previous slice. If all slices fit in SLOTS, they stay there for all columns. COORDINATES_SHARED (whether
// the table of coordinates also fits in shared memory) is a compile-time constant.

typedef struct {
    const u32* stripes;
    const uint2* coordinates;
    const u8* levels;
} Rows;
#define ROW_PARAMETERS const u32 *stripes, const uint2 *coordinates, const u8 *levels
#define ROWS Rows { stripes, coordinates, levels }

#ifdef COLUMNS
#define SLOTS (SLICES <= 4 ? SLICES : 2)
#define TABLE_BYTES (128 + (COORDINATES_SHARED ? 8 * CODED : 0))
#define ROW_BYTES ((SLOTS * TILE * SLICE + TABLE_BYTES + 1023) / 1024 * 1024)

// Levels of half a slice of one code: all lanes of a warp read the same coordinates.
__device__ __forceinline__ void draw(const Rows& rows, u64 code, u32 slice, u8* slot) {
    const u32 row = threadIdx.x % TILE, begin = slice * SLICE + threadIdx.x / TILE * (SLICE / 2);
    const u8* table = dynamic_shared + SLOTS * TILE * SLICE;
    const uint2* coordinates = COORDINATES_SHARED ? reinterpret_cast<const uint2*>(table + 128) : rows.coordinates;
    if (begin >= CODED) return;
    uint4 piece = make_uint4(0, 0, 0, 0);
    for_each_four(code_at(rows.stripes, code), coordinates, table, begin, min(begin + SLICE / 2, u32(CODED)), [&](u32 four, u32 found) {
        piece = make_uint4(piece.y, piece.z, piece.w, found);
        if (four % 4 == 3) *reinterpret_cast<uint4*>(slot + piece_at(row, four / 4 % 8)) = piece;
    });
}

__device__ __forceinline__ void multiply_tiles(Sums& sums, const Rows& rows, u32 n_codes, const u8* columns, u32 tile, u32 first_column, bool again) {
    u8 *slots = dynamic_shared, *digits = dynamic_shared + ROW_BYTES;  // STAGES slices of the columns
    const u32 padded = SLICES * SLICE;
    const bool draws = !again || SLICES > SLOTS;
    const u64 code = min(tile * TILE + threadIdx.x % TILE, n_codes - 1);
    clear(sums);
    const auto fetch = [&](u32 slice) {
        if (slice < SLICES)
            fetch_columns(digits + slice % STAGES * (COLUMNS * SLICE), columns + u64(first_column) * padded + slice * SLICE, padded);
        commit_copies();
    };
    fetch(0);
    fetch(1);
    if (!again) {
        u8* table = slots + SLOTS * TILE * SLICE;
        for (u32 i = threadIdx.x; i < 128; i += 256) table[i] = rows.levels[i];
        for (u32 i = threadIdx.x; COORDINATES_SHARED && i < CODED; i += 256) reinterpret_cast<uint2*>(table + 128)[i] = rows.coordinates[i];
        __syncthreads();
    }
    if (draws) draw(rows, code, 0, slots);
    for (u32 slice = 0; slice < SLICES; ++slice) {
        const u8 *a = slots + slice % SLOTS * (TILE * SLICE), *b = digits + slice % STAGES * (COLUMNS * SLICE);
        wait_copies<1>();
        show_writes();
        __syncthreads();  // this slice is loaded, and the previous one is no longer read
        start_product(sums, a, b);
        fetch(slice + 2);
        if (draws && slice + 1 < SLICES) draw(rows, code, slice + 1, slots + (slice + 1) % SLOTS * (TILE * SLICE));
        finish_product(sums, a, b);
    }
}
#endif
