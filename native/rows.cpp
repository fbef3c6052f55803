// Unpacking codes into table rows.
#include "ones.h"
#include "rows.h"

namespace topsign {
namespace {

void unpack_rows_scalar(const Layout& layout, const uint8_t* code, int shift, uint32_t* rows) {
    unpack_code(layout, code, rows);
    for (int64_t i = 0; i < layout.n_bits; ++i)
        rows[i] = uint32_t(table_row(layout, rows[i] & ~kNegative, !(rows[i] & kNegative)) << shift);
}

#if TOPSIGN_X86
// Sixteen bytes a block are turned into rows at a time; those past its count are overwritten by the next block.
template <int Shift>
TOPSIGN_AVX2_INLINE void store_rows(uint32_t* to, __m256i base, __m128i bytes) {
    const __m256i row = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), Shift);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi32(base, row));
}

template <int Shift>
TOPSIGN_AVX2 void unpack_fast_avx2(const Layout& layout, const uint8_t* code, uint32_t* rows) {
    const uint8_t* bytes = code + layout.n_blocks();
    for (int64_t block = 0; block < layout.n_blocks(); ++block) {
        const int count = code[block];
        const __m256i base = _mm256_set1_epi32(int(block * 256) << Shift);
        int t = 0;
        do {  // without a branch for the usual count of at most 16
            const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + t));
            store_rows<Shift>(rows + t, base, some);
            store_rows<Shift>(rows + t + 8, base, _mm_srli_si128(some, 8));
            t += 16;
        } while (t < count);
        bytes += count;
        rows += count;
    }
}

// Elias-Fano: positions of ones give the high parts, eight low parts are cut out of one 64-bit window.
TOPSIGN_AVX2 void unpack_compact_avx2(const Layout& layout, const uint8_t* code, int shift, uint32_t* rows) {
    const int low_bits = int(layout.low_bits);
    const uint8_t* lows = code + layout.sign_bytes();
    const uint8_t* highs = lows + layout.low_bytes();
    const int64_t high_bytes = ceil_div(layout.high_size(), 8);
    uint32_t* out = rows;
    uint32_t* const end = rows + layout.n_bits;
    for (int64_t at = 0; at < high_bytes && out < end; ++at) {  // eight places a byte, those past its ones overwritten
        const auto* places = reinterpret_cast<const __m128i*>(kOnesOfByte.place[highs[at]]);
        const __m256i base = _mm256_set1_epi32(int(at * 8));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_add_epi32(base, _mm256_cvtepu8_epi32(_mm_loadl_epi64(places))));
        out += kOnesOfByte.count[highs[at]];
    }
    const bool bitmap = layout.bitmap();
    if (low_bits <= 8) {
        const uint64_t spread = low_bits == 0 ? 0 : ((uint64_t(1) << low_bits) - 1) * 0x0101010101010101u;
        const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        for (int64_t i = 0; i < layout.n_bits; i += 8) {
            uint64_t window = 0;
            std::memcpy(&window, lows + i / 8 * low_bits, 8);
            const uint64_t low_bytes = _pdep_u64(window, spread);
            const __m256i low = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(int64_t(low_bytes)));
            const __m256i taken = bitmap ? _mm256_setzero_si256() : _mm256_add_epi32(_mm256_set1_epi32(int(i)), step);
            __m256i row = _mm256_sub_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + i)), taken);
            row = _mm256_or_si256(_mm256_slli_epi32(row, low_bits), low);
            const __m256i sign = _mm256_and_si256(_mm256_set1_epi32(code[i / 8]), bits);
            const __m256i positive = _mm256_srli_epi32(_mm256_cmpeq_epi32(sign, bits), 31);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + i), _mm256_slli_epi32(_mm256_or_si256(_mm256_add_epi32(row, row), positive), shift));
        }
        return;
    }
    const uint64_t low_mask = (uint64_t(1) << low_bits) - 1;
    for (int64_t i = 0; i < layout.n_bits; ++i) {
        uint64_t window;
        std::memcpy(&window, lows + (i * low_bits >> 3), 8);
        const uint32_t low = uint32_t(window >> (i * low_bits & 7) & low_mask);
        rows[i] = (((rows[i] - uint32_t(i)) << low_bits | low) << 1 | get_bit(code, i)) << shift;
    }
}
#endif

}  // namespace

void unpack_rows(int path, const Layout& layout, const uint8_t* code, bool padded, int shift, uint32_t* rows) {
#if TOPSIGN_X86
    if (path == kAvx2 && padded) {
        if (!layout.fast()) return unpack_compact_avx2(layout, code, shift, rows);
        return shift == 0 ? unpack_fast_avx2<0>(layout, code, rows) : unpack_fast_avx2<kRowShift>(layout, code, rows);
    }
#endif
    (void)path;
    (void)padded;
    unpack_rows_scalar(layout, code, shift, rows);
}

}  // namespace topsign
