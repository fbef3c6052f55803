// Unpacking codes into table rows.
#include <type_traits>

#include "ones.h"
#include "rows.h"

namespace topsign {
namespace {

template <class Row>
void unpack_rows_scalar(const Layout& layout, const uint8_t* code, int shift, Row* rows) {
    std::vector<uint32_t> narrowed;  // only rows of 16 bits need room of their own
    uint32_t* kept;
    if constexpr (sizeof(Row) == sizeof(uint32_t)) {
        kept = rows;
    } else {
        narrowed.resize(layout.n_bits);
        kept = narrowed.data();
    }
    unpack_code(layout, code, kept);
    for (int64_t i = 0; i < layout.n_bits; ++i)
        rows[i] = Row(table_row(layout, kept[i] & ~kNegative, !(kept[i] & kNegative)) << shift);
}

#if TOPSIGN_X86
// Numbers of 16 or 32 bits that fill a register.
struct Wide32 {
    using Row = uint32_t;
    static constexpr int kLanes = 8;
    TOPSIGN_AVX2_INLINE static __m256i all(int v) { return _mm256_set1_epi32(v); }
    TOPSIGN_AVX2_INLINE static __m256i steps() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
    TOPSIGN_AVX2_INLINE static __m256i bits() { return _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128); }
    TOPSIGN_AVX2_INLINE static __m256i widen(__m128i bytes) { return _mm256_cvtepu8_epi32(bytes); }
    TOPSIGN_AVX2_INLINE static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
    TOPSIGN_AVX2_INLINE static __m256i sub(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
    TOPSIGN_AVX2_INLINE static __m256i left(__m256i a, __m128i n) { return _mm256_sll_epi32(a, n); }
    TOPSIGN_AVX2_INLINE static __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(a, b); }
    TOPSIGN_AVX2_INLINE static void store_eight(Row* to, __m256i base, __m128i bytes) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi32(base, _mm256_cvtepu8_epi32(bytes)));
    }
};

struct Wide16 {
    using Row = uint16_t;
    static constexpr int kLanes = 16;
    TOPSIGN_AVX2_INLINE static __m256i all(int v) { return _mm256_set1_epi16(short(v)); }
    TOPSIGN_AVX2_INLINE static __m256i steps() {
        return _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    TOPSIGN_AVX2_INLINE static __m256i bits() {
        return _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    }
    TOPSIGN_AVX2_INLINE static __m256i widen(__m128i bytes) { return _mm256_cvtepu8_epi16(bytes); }
    TOPSIGN_AVX2_INLINE static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
    TOPSIGN_AVX2_INLINE static __m256i sub(__m256i a, __m256i b) { return _mm256_sub_epi16(a, b); }
    TOPSIGN_AVX2_INLINE static __m256i left(__m256i a, __m128i n) { return _mm256_sll_epi16(a, n); }
    TOPSIGN_AVX2_INLINE static __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi16(a, b); }
    TOPSIGN_AVX2_INLINE static void store_eight(Row* to, __m256i base, __m128i bytes) {
        const __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(base), _mm_cvtepu8_epi16(bytes));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), sum);
    }
};

// Sixteen bytes of a block are turned into rows at a time; those past its count are overwritten by the next block.
template <int Shift>
TOPSIGN_AVX2 void unpack_fast_avx2(const Layout& layout, const uint8_t* code, uint32_t* rows) {
    const uint8_t* bytes = code + layout.n_blocks();
    for (int64_t block = 0; block < layout.n_blocks(); ++block) {
        const int count = code[block];
        const __m256i base = _mm256_set1_epi32(int(block * 256) << Shift);
        int t = 0;
        do {  // without a branch for the usual count of at most 16
            const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + t));
            const __m256i low = _mm256_cvtepu8_epi32(some), high = _mm256_cvtepu8_epi32(_mm_srli_si128(some, 8));
            auto* out = reinterpret_cast<__m256i*>(rows + t);
            _mm256_storeu_si256(out, _mm256_add_epi32(base, _mm256_slli_epi32(low, Shift)));
            _mm256_storeu_si256(out + 1, _mm256_add_epi32(base, _mm256_slli_epi32(high, Shift)));
            t += 16;
        } while (t < count);
        bytes += count;
        rows += count;
    }
}

// In 16 bits a row is its block's number beside the location's byte: numbers are written first, sixteen at a time,
// then bytes and numbers are interleaved (in halves of a register, hence the exchange of its middle quarters).
template <int Shift>
TOPSIGN_AVX2 void unpack_fast_avx2(const Layout& layout, const uint8_t* code, uint16_t* rows) {
    const int64_t n_bits = layout.n_bits, n_blocks = layout.n_blocks();
    auto* const numbers = reinterpret_cast<uint8_t*>(rows + n_bits + 32) - (n_bits + 32);  // the end of the room
    uint8_t* at = numbers;
    __m128i number = _mm_setzero_si128();
    const __m128i one = _mm_set1_epi8(1);
    for (int64_t block = 0; block < n_blocks; ++block) {
        const int count = code[block];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at), number);
        for (int t = 16; t < count; t += 16) _mm_storeu_si128(reinterpret_cast<__m128i*>(at + t), number);
        number = _mm_add_epi8(number, one);
        at += count;
    }
    const uint8_t* bytes = code + n_blocks;
    for (int64_t j = 0; j < n_bits; j += 32) {
        const __m256i low =
            _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + j)), 0xd8);
        const __m256i high =
            _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + j)), 0xd8);
        auto* out = reinterpret_cast<__m256i*>(rows + j);
        _mm256_storeu_si256(out, _mm256_slli_epi16(_mm256_unpacklo_epi8(low, high), Shift));
        _mm256_storeu_si256(out + 1, _mm256_slli_epi16(_mm256_unpackhi_epi8(low, high), Shift));
    }
}

// Elias-Fano: the places of ones give the high parts, eight low parts are spread out of one 64-bit window.
template <class Wide>
TOPSIGN_AVX2 void unpack_compact_avx2(const Layout& layout, const uint8_t* code, int shift, typename Wide::Row* rows) {
    using Row = typename Wide::Row;
    const int low_bits = int(layout.low_bits);
    const uint8_t* lows = code + layout.sign_bytes();
    const uint8_t* highs = lows + layout.low_bytes();
    const int64_t high_bytes = ceil_div(layout.high_size(), 8);
    Row* out = rows;
    Row* const end = rows + layout.n_bits;
    __m256i base = Wide::all(0);
    const __m256i eight = Wide::all(8);
    for (int64_t at = 0; at < high_bytes && out < end; ++at) {  // eight places a byte, those past its ones overwritten
        const uint8_t byte = highs[at];
        Wide::store_eight(out, base, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOnesOfByte.place[byte])));
        out += _mm_popcnt_u32(byte);
        base = Wide::add(base, eight);
    }
    if (low_bits <= 8) {
        constexpr int kWindows = Wide::kLanes / 8;
        const uint64_t spread = ((uint64_t(1) << low_bits) - 1) * 0x0101010101010101u;
        const __m128i by_low = _mm_cvtsi32_si128(low_bits + 1 + shift), by_one = _mm_cvtsi32_si128(1 + shift);
        const __m256i positive_row = Wide::all(1 << shift), step = Wide::all(layout.bitmap() ? 0 : Wide::kLanes);
        __m256i before = layout.bitmap() ? Wide::all(0) : Wide::steps();  // ones before each one
        for (int64_t i = 0; i < layout.n_bits; i += Wide::kLanes) {
            uint64_t window[2] = {};
            uint16_t signs = 0;
            for (int w = 0; w < kWindows; ++w) {
                std::memcpy(&window[w], lows + (i / 8 + w) * low_bits, 8);
                window[w] = _pdep_u64(window[w], spread);
            }
            std::memcpy(&signs, code + i / 8, kWindows);
            const __m256i low = Wide::widen(_mm_set_epi64x(int64_t(window[1]), int64_t(window[0])));
            auto* const at = reinterpret_cast<__m256i*>(rows + i);
            const __m256i high = Wide::sub(_mm256_loadu_si256(at), before);
            const __m256i is_positive = Wide::equal(_mm256_and_si256(Wide::all(signs), Wide::bits()), Wide::bits());
            const __m256i row = _mm256_or_si256(Wide::left(high, by_low), Wide::left(low, by_one));
            _mm256_storeu_si256(at, _mm256_or_si256(row, _mm256_and_si256(is_positive, positive_row)));
            before = Wide::add(before, step);
        }
        return;
    }
    const uint64_t low_mask = (uint64_t(1) << low_bits) - 1;
    for (int64_t i = 0; i < layout.n_bits; ++i) {
        uint64_t window;
        std::memcpy(&window, lows + (i * low_bits >> 3), 8);
        const uint32_t low = uint32_t(window >> (i * low_bits & 7) & low_mask);
        rows[i] = Row((((rows[i] - uint32_t(i)) << low_bits | low) << 1 | get_bit(code, i)) << shift);
    }
}

// The inverse of table_row: locations, the top bit set where the sign is negative.
TOPSIGN_AVX2 void rows_to_kept(const Layout& layout, uint32_t* rows) {
    if (layout.fast())
        for (int64_t i = 0; i < layout.n_bits; ++i) {
            const uint32_t row = rows[i], location = (row >> 8) << 7 | (row & 15) << 3 | (row >> 4 & 7);
            rows[i] = location | ((~row & 128) << 24);
        }
    else
        for (int64_t i = 0; i < layout.n_bits; ++i) rows[i] = rows[i] >> 1 | ~rows[i] << 31;
}
#endif

}  // namespace

template <class Row>
void unpack_rows(int path, const Layout& layout, const uint8_t* code, bool padded, int shift, Row* rows) {
#if TOPSIGN_X86
    if (path == kAvx2 && padded) {
        using Wide = std::conditional_t<sizeof(Row) == 2, Wide16, Wide32>;
        if (!layout.fast()) return unpack_compact_avx2<Wide>(layout, code, shift, rows);
        return shift == 0 ? unpack_fast_avx2<0>(layout, code, rows) : unpack_fast_avx2<kRowShift>(layout, code, rows);
    }
#endif
    (void)path;
    (void)padded;
    unpack_rows_scalar(layout, code, shift, rows);
}

void unpack_kept(int path, const Layout& layout, const uint8_t* code, bool padded, uint32_t* kept) {
#if TOPSIGN_X86
    if (path == kAvx2 && padded) {
        unpack_rows(path, layout, code, padded, 0, kept);
        return rows_to_kept(layout, kept);
    }
#endif
    (void)path;
    (void)padded;
    unpack_code(layout, code, kept);
}

template void unpack_rows(int, const Layout&, const uint8_t*, bool, int, uint16_t*);
template void unpack_rows(int, const Layout&, const uint8_t*, bool, int, uint32_t*);

}  // namespace topsign
