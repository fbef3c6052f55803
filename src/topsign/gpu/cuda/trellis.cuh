// How a thread reads a trellis code.
//
// Word j of a code has bits 32 j to 32 j + 31 of its ring, the first in the highest bit; the beginning of the ring is
// repeated after its end, so that each window lies in two neighbouring words. Coordinate i reads WINDOW bits from its
// offset on. They are the high bits of a 16-bit word; the seven high bits of this word times the multiplier plus the
// addend are the number of a level. An entry of the table of coordinates has offset % 32 | offset / 32 << 5, with TURNS
// if one of the next four coordinates reads another word than its predecessor, and addend << 16 | multiplier. A window is
// held in the high half of 32 bits, so the addend does not affect the product, nor the multiplier the sum.
//
// RING_BITS, WINDOW and N_POOL (coded coordinates) are compile-time constants; tables are padded to 16.

#define TURNS 0x80000000u
#define WINDOW_MASK (ALL << (32 - WINDOW))
#define CODED ((N_POOL + 15) / 16 * 16)
#define FEW_DIGITS (FINE_BITS ? 2 : 1)

struct Ring {
    const u32* code;
    u32 word, near, far;  // index of the current word, its value, and the next word

    __device__ __forceinline__ void turn_to(u32 place) {
        const u32 next = (place & ~TURNS) >> 5;
        if (next == word) return;
        near = next == word + 1 ? far : code[next * GROUP];
        far = next + 1 < CODE_WORDS ? code[(next + 1) * GROUP] : 0;
        word = next;
    }
    __device__ __forceinline__ u32 level(uint2 coordinate, const u8* levels) const {
        const u32 window = __funnelshift_l(far, near, coordinate.x) & WINDOW_MASK;
        return levels[(window * coordinate.y + coordinate.y) >> 25];
    }
};

// Calls use(i / 4, levels) with the levels of coordinates i to i + 3 in the bytes of a word, for i in [begin, end):
// multiples of 4. All lanes of a warp are at the same coordinate, so they do not diverge.
template <class Use>
__device__ __forceinline__ void for_each_four(const u32* code, const uint2* coordinates, const u8* levels, u32 begin, u32 end, const Use& use) {
    Ring ring{code, ALL - 1, 0, 0};
    ring.turn_to(coordinates[begin].x);
#pragma unroll 4
    for (u32 i = begin; i < end; i += 4) {
        const uint4 first = *reinterpret_cast<const uint4*>(coordinates + i);
        const uint4 second = *reinterpret_cast<const uint4*>(coordinates + i + 2);
        const uint2 four[4] = {{first.x, first.y}, {first.z, first.w}, {second.x, second.y}, {second.z, second.w}};
        u32 found = 0;
        if (first.x & TURNS) {
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                ring.turn_to(four[j].x);
                found |= ring.level(four[j], levels) << 8 * j;
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < 4; ++j) found |= ring.level(four[j], levels) << 8 * j;
        }
        use(i / 4, found);
    }
}

// Copies of the tables of coordinates and levels in shared memory, 8 * CODED + 128 bytes.
struct Tables {
    const uint2* coordinates;
    const u8* levels;

    __device__ __forceinline__ Tables(const uint2* all, const u8* table, u8* shared) {
        uint2* mine = reinterpret_cast<uint2*>(shared);
        u8* own = shared + 8 * CODED;
        for (u32 i = threadIdx.x; i < CODED; i += blockDim.x) mine[i] = all[i];
        for (u32 i = threadIdx.x; i < 128; i += blockDim.x) own[i] = table[i];
        __syncthreads();
        coordinates = mine, levels = own;
    }
};
