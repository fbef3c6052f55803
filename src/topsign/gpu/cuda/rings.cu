// Conversion of trellis codes to groups of 32, and their weights.

// Bits `first` to `first + 7` of the ring, which repeats after its end.
__device__ __forceinline__ u32 ring_byte(const u8* code, u32 first) {
    if (first + 8 <= RING_BITS) return code[first / 8];
    u32 byte = 0;
    for (u32 bit = first; bit < first + 8; ++bit) {
        const u32 at = bit % RING_BITS;
        byte = byte << 1 | (code[at / 8] >> (7 - at % 8) & 1);
    }
    return byte;
}

// One thread per code.
extern "C" __global__ void unroll(const u8* codes, u32 code_bytes, u32 n_codes, u32* stripes) {
    const u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= n_codes) return;
    const u8* code = codes + u64(position) * code_bytes;
    u32* out = const_cast<u32*>(code_at(stripes, position));
    for (u32 j = 0; j < CODE_WORDS; ++j) {
        u32 word = 0;
        for (u32 b = 0; b < 4; ++b) word = word << 8 | ring_byte(code, 32 * j + 8 * b);
        out[u64(j) * GROUP] = word;
    }
}

// Writes the inverse norm of each reconstruction and, if `with_norms` is not null, its product with the norm in the last
// two bytes of the code. `norm` has the quadratic and linear coefficients of coordinates, padded with zeros; `fractions`
// are 512 powers of two. One thread per code.
extern "C" __global__ void weigh(const u32* stripes, const uint2* coordinates, const u8* levels, const uint2* norm, float unit,
                                 float constant, const float* fractions, const u8* codes, u32 code_bytes,
                                 u32 n_codes, float* weights, float* with_norms) {
    const Tables tables(coordinates, levels, dynamic_shared);
    const u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= n_codes) return;
    int sum = 0;
    for_each_four(code_at(stripes, position), tables.coordinates, tables.levels, 0, CODED, [&](u32 four, u32 found) {
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const int level = int(found << (24 - 8 * j)) >> 24;
            const uint2 both = norm[4 * four + j];
            sum += level * (level * int(both.x) + int(both.y));
        }
    });
    const float square = float(sum) * unit + constant;
    const float weight = square > 0 ? 1.f / sqrtf(square) : 0.f;
    weights[position] = weight;
    if (!with_norms) return;
    const u8* packed = codes + (u64(position) + 1) * code_bytes - 2;
    const int steps = packed[0] | packed[1] << 8;
    const float norm_of = steps == 0 ? 0.f : fractions[steps & 511] * __int_as_float(((steps >> 9) - 64 + 127) << 23);
    with_norms[position] = weight * norm_of;
}
