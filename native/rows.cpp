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
// Eight or sixteen numbers of 16 or 32 bits in one register.
struct Wide32 {
    using Row = uint32_t;
    using Type = __m256i;
    TOPSIGN_AVX2_INLINE static Type all(int v) { return _mm256_set1_epi32(v); }
    TOPSIGN_AVX2_INLINE static Type steps() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
    TOPSIGN_AVX2_INLINE static Type bits() { return _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128); }
    TOPSIGN_AVX2_INLINE static Type widen(__m128i bytes) { return _mm256_cvtepu8_epi32(bytes); }
    TOPSIGN_AVX2_INLINE static Type add(Type a, Type b) { return _mm256_add_epi32(a, b); }
    TOPSIGN_AVX2_INLINE static Type sub(Type a, Type b) { return _mm256_sub_epi32(a, b); }
    TOPSIGN_AVX2_INLINE static Type left(Type a, int n) { return _mm256_sll_epi32(a, _mm_cvtsi32_si128(n)); }
    TOPSIGN_AVX2_INLINE static Type or_(Type a, Type b) { return _mm256_or_si256(a, b); }
    TOPSIGN_AVX2_INLINE static Type has(Type a, Type bit) {
        return _mm256_srli_epi32(_mm256_cmpeq_epi32(_mm256_and_si256(a, bit), bit), 31);
    }
    TOPSIGN_AVX2_INLINE static Type load(const Row* p) { return _mm256_loadu_si256(reinterpret_cast<const Type*>(p)); }
    TOPSIGN_AVX2_INLINE static void store(Row* p, Type a) { _mm256_storeu_si256(reinterpret_cast<Type*>(p), a); }
};

struct Wide16 {
    using Row = uint16_t;
    using Type = __m128i;
    TOPSIGN_AVX2_INLINE static Type all(int v) { return _mm_set1_epi16(short(v)); }
    TOPSIGN_AVX2_INLINE static Type steps() { return _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7); }
    TOPSIGN_AVX2_INLINE static Type bits() { return _mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128); }
    TOPSIGN_AVX2_INLINE static Type widen(__m128i bytes) { return _mm_cvtepu8_epi16(bytes); }
    TOPSIGN_AVX2_INLINE static Type add(Type a, Type b) { return _mm_add_epi16(a, b); }
    TOPSIGN_AVX2_INLINE static Type sub(Type a, Type b) { return _mm_sub_epi16(a, b); }
    TOPSIGN_AVX2_INLINE static Type left(Type a, int n) { return _mm_sll_epi16(a, _mm_cvtsi32_si128(n)); }
    TOPSIGN_AVX2_INLINE static Type or_(Type a, Type b) { return _mm_or_si128(a, b); }
    TOPSIGN_AVX2_INLINE static Type has(Type a, Type bit) {
        return _mm_srli_epi16(_mm_cmpeq_epi16(_mm_and_si128(a, bit), bit), 15);
    }
    TOPSIGN_AVX2_INLINE static Type load(const Row* p) { return _mm_loadu_si128(reinterpret_cast<const Type*>(p)); }
    TOPSIGN_AVX2_INLINE static void store(Row* p, Type a) { _mm_storeu_si128(reinterpret_cast<Type*>(p), a); }
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
            Wide32::store(rows + t, _mm256_add_epi32(base, _mm256_slli_epi32(low, Shift)));
            Wide32::store(rows + t + 8, _mm256_add_epi32(base, _mm256_slli_epi32(high, Shift)));
            t += 16;
        } while (t < count);
        bytes += count;
        rows += count;
    }
}

template <int Shift>
TOPSIGN_AVX2 void unpack_fast_avx2(const Layout& layout, const uint8_t* code, uint16_t* rows) {
    const uint8_t* bytes = code + layout.n_blocks();
    __m256i base = _mm256_setzero_si256();
    const __m256i block_rows = _mm256_set1_epi16(256 << Shift);
    for (int64_t block = 0; block < layout.n_blocks(); ++block) {
        const int count = code[block];
        int t = 0;
        do {
            const __m256i some = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + t)));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + t),
                                _mm256_add_epi16(base, _mm256_slli_epi16(some, Shift)));
            t += 16;
        } while (t < count);
        bytes += count;
        rows += count;
        base = _mm256_add_epi16(base, block_rows);
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
    auto base = Wide::all(0);
    const auto eight = Wide::all(8);
    for (int64_t at = 0; at < high_bytes && out < end; ++at) {  // eight places a byte, those past its ones overwritten
        const auto* places = reinterpret_cast<const __m128i*>(kOnesOfByte.place[highs[at]]);
        Wide::store(out, Wide::add(base, Wide::widen(_mm_loadl_epi64(places))));
        out += kOnesOfByte.count[highs[at]];
        base = Wide::add(base, eight);
    }
    if (low_bits <= 8) {
        const uint64_t spread = ((uint64_t(1) << low_bits) - 1) * 0x0101010101010101u;
        for (int64_t i = 0; i < layout.n_bits; i += 8) {
            uint64_t window;
            std::memcpy(&window, lows + i / 8 * low_bits, 8);
            const auto low = Wide::widen(_mm_cvtsi64_si128(int64_t(_pdep_u64(window, spread))));
            auto row = Wide::load(rows + i);
            if (!layout.bitmap()) row = Wide::sub(row, Wide::add(Wide::all(int(i)), Wide::steps()));
            row = Wide::or_(Wide::left(row, low_bits), low);
            const auto positive = Wide::has(Wide::all(code[i / 8]), Wide::bits());
            Wide::store(rows + i, Wide::left(Wide::or_(Wide::add(row, row), positive), shift));
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

template void unpack_rows(int, const Layout&, const uint8_t*, bool, int, uint16_t*);
template void unpack_rows(int, const Layout&, const uint8_t*, bool, int, uint32_t*);

}  // namespace topsign
