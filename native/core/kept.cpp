// Packing and unpacking of adaptive codes.
#include "kept.h"

#include <vector>

#include "threads.h"

namespace topsign {
namespace {

void pack_code(const Layout& layout, const int32_t* locations, const uint8_t* signs, uint8_t* out) {
    uint8_t* lows = out + layout.sign_bytes();
    uint8_t* highs = lows + layout.low_bytes();
    std::memcpy(out, signs, layout.sign_bytes());
    uint64_t pending = 0;  // low bits not yet written, `n_pending` of them
    int n_pending = 0;
    for (int64_t i = 0; i < layout.n_bits; ++i) {
        const uint32_t location = uint32_t(locations[i]);
        pending |= uint64_t(location & ((1u << layout.low_bits) - 1)) << n_pending;
        for (n_pending += int(layout.low_bits); n_pending >= 8; n_pending -= 8, pending >>= 8)
            *lows++ = uint8_t(pending);
        set_bit(highs, (location >> layout.low_bits) + (layout.bitmap() ? 0 : i));
    }
    if (n_pending > 0) *lows = uint8_t(pending);
}

uint64_t load_word(const uint8_t* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

void unpack_below(const Layout& layout, const uint8_t* code, int64_t last_location, uint32_t* kept) {
    const int64_t n_bits = layout.n_bits, low_bits = layout.low_bits, step = layout.bitmap() ? 0 : 1;
    const int64_t high_size = layout.high_size();
    const uint8_t* const lows = code + layout.sign_bytes();
    const uint8_t* const highs = lows + layout.low_bytes();
    const uint64_t low_mask = (uint64_t(1) << low_bits) - 1;
    int64_t i = 0;
    for (int64_t at = 0; at < high_size && i < n_bits; at += 64) {
        uint64_t word = load_word(highs + at / 8);
        const int64_t left = ceil_div(high_size - at, 8) * 8;  // bits of this part of the code
        if (left < 64) word &= (uint64_t(1) << left) - 1;
        for (; word && i < n_bits; word &= word - 1, ++i) {
            const int64_t high = at + count_trailing_zeros(word) - i * step, low_at = i * low_bits;
            const uint64_t low = load_word(lows + (low_at >> 3)) >> (low_at & 7) & low_mask;
            const int64_t location = std::min<int64_t>(high << low_bits | int64_t(low), last_location);
            kept[i] = uint32_t(location) | (get_bit(code, i) ? 0 : kNegative);
        }
    }
    std::fill(kept + i, kept + n_bits, 0);
}

// A code with the bytes after it that unpacking reads.
class PaddedCode {
   public:
    explicit PaddedCode(int64_t n_bytes) : n_bytes_(n_bytes), bytes_(n_bytes + kCodePadding) {}
    const uint8_t* operator()(const uint8_t* code) {
        std::memcpy(bytes_.data(), code, size_t(n_bytes_));
        return bytes_.data();
    }

   private:
    const int64_t n_bytes_;
    std::vector<uint8_t> bytes_;
};

// Whether the bits from n to the end of their byte are zero.
bool padded_with_zeros(const uint8_t* bits, int64_t n) { return n % 8 == 0 || bits[n / 8] >> (n % 8) == 0; }

bool is_valid(const Layout& layout, const uint8_t* code, uint32_t* kept) {
    const uint8_t* lows = code + layout.sign_bytes();
    const uint8_t* highs = lows + layout.low_bytes();
    int64_t ones = 0;
    for (int64_t i = 0; i < ceil_div(layout.high_size(), 8); ++i) ones += count_ones(highs[i]);
    if (ones != layout.n_bits || !padded_with_zeros(code, layout.n_bits) ||
        !padded_with_zeros(lows, layout.n_bits * layout.low_bits) || !padded_with_zeros(highs, layout.high_size()))
        return false;
    unpack_below(layout, code, INT32_MAX, kept);
    for (int64_t i = 1; i < layout.n_bits; ++i)
        if ((kept[i] & ~kNegative) <= (kept[i - 1] & ~kNegative)) return false;
    return (kept[layout.n_bits - 1] & ~kNegative) < layout.n_pool;
}

}  // namespace

void unpack_code(const Layout& layout, const uint8_t* code, uint32_t* kept) {
    unpack_below(layout, code, layout.n_pool - 1, kept);
}

void pack_codes(int n_threads, const Layout& layout, int64_t n_codes, const ts_contents& contents, uint8_t* out) {
    const int64_t stride = layout.code_bytes();
    parallel_for(n_threads, n_codes, 3 * double(layout.n_bits), [&](int64_t begin, int64_t end) {
        std::memset(out + begin * stride, 0, (end - begin) * stride);
        for (int64_t i = begin; i < end; ++i)
            pack_code(layout, contents.locations + i * layout.n_bits, contents.signs + i * layout.sign_bytes(),
                      out + i * stride);
    });
}

void unpack_codes(int n_threads, const Layout& layout, const uint8_t* codes, int64_t n_codes, const ts_contents& out) {
    const int64_t n_bits = layout.n_bits;
    parallel_for(n_threads, n_codes, 3 * double(n_bits), [&](int64_t begin, int64_t end) {
        std::vector<uint32_t> kept(n_bits);
        PaddedCode padded(layout.code_bytes());
        std::memset(out.signs + begin * layout.sign_bytes(), 0, (end - begin) * layout.sign_bytes());
        for (int64_t i = begin; i < end; ++i) {
            unpack_code(layout, padded(codes + i * layout.code_bytes()), kept.data());
            for (int64_t j = 0; j < n_bits; ++j) {
                out.locations[i * n_bits + j] = int32_t(kept[j] & ~kNegative);
                if (!(kept[j] & kNegative)) set_bit(out.signs + i * layout.sign_bytes(), j);
            }
        }
    });
}

void valid_codes(int n_threads, const Layout& layout, const uint8_t* codes, int64_t n_codes, uint8_t* valid) {
    parallel_for(n_threads, n_codes, 3 * double(layout.n_bits), [&](int64_t begin, int64_t end) {
        std::vector<uint32_t> kept(layout.n_bits);
        PaddedCode padded(layout.code_bytes());
        for (int64_t i = begin; i < end; ++i)
            valid[i] = is_valid(layout, padded(codes + i * layout.code_bytes()), kept.data());
    });
}

}  // namespace topsign
