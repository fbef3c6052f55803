// Entropy coding of sets of locations: an arithmetic coder with exact conditional counts.
//
// Row after row, the probability that it is kept is (locations left) / (rows left), whatever the data, so
// every set of n_bits of n_pool costs log2 C(n_pool, n_bits) bits, up to a byte or two. The interval is
// [low, low + range) in 64 bits; range stays at 2^56 or above, so that a division by at most 2^24 rows
// loses less than 2^-32 of it.
#include "sets.h"

#include "bits.h"
#include "threads.h"

namespace topsign {
namespace {

constexpr uint64_t kSmall = uint64_t(1) << 56;

int64_t encode_set(const int32_t* locations, int64_t n_bits, int64_t n_pool, uint8_t* out) {
    uint64_t low = 0, range = ~uint64_t(0);
    int64_t length = 0, kept = 0;
    const auto add = [&](uint64_t amount) {
        low += amount;
        if (low < amount)  // propagate the carry into the bytes already written
            for (int64_t i = length - 1; ++out[i] == 0; --i) {
            }
    };
    const auto put_byte = [&] {
        out[length++] = uint8_t(low >> 56);
        low <<= 8;
    };
    for (int64_t row = 0; row < n_pool; ++row) {
        const uint64_t left = n_bits - kept, rows_left = n_pool - row;
        if (left == 0 || left == rows_left) break;
        const uint64_t split = range / rows_left * left;
        if (locations[kept] == row) {
            range = split;
            ++kept;
        } else {
            add(split);
            range -= split;
        }
        for (; range < kSmall; range <<= 8) put_byte();
    }
    // The interval contains a multiple of 2^56, which takes one byte; trailing zeros are not written.
    add(kSmall - 1);
    put_byte();
    while (length > 0 && out[length - 1] == 0) --length;
    return length;
}

void decode_set(const uint8_t* bytes, int64_t capacity, int64_t n_bits, int64_t n_pool, int32_t* locations) {
    int64_t at = 0, kept = 0;
    const auto next_byte = [&]() -> uint64_t { return at < capacity ? bytes[at++] : 0; };
    uint64_t value = 0, range = ~uint64_t(0);
    for (int i = 0; i < 8; ++i) value = value << 8 | next_byte();
    for (int64_t row = 0; row < n_pool && kept < n_bits; ++row) {
        const uint64_t left = n_bits - kept, rows_left = n_pool - row;
        if (left == rows_left) {
            locations[kept++] = int32_t(row);
            continue;
        }
        const uint64_t split = range / rows_left * left;
        if (value < split) {
            range = split;
            locations[kept++] = int32_t(row);
        } else {
            value -= split;
            range -= split;
        }
        for (; range < kSmall; range <<= 8) value = value << 8 | next_byte();
    }
}

}  // namespace

void encode_sets(int n_threads, const ts_sets& sets, const int32_t* locations, uint8_t* out, int64_t* lengths) {
    std::memset(out, 0, sets.n_sets * sets.capacity);
    parallel_for(n_threads, sets.n_sets, 10 * double(sets.n_pool), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            lengths[i] = encode_set(locations + i * sets.n_bits, sets.n_bits, sets.n_pool, out + i * sets.capacity);
    });
}

void decode_sets(int n_threads, const ts_sets& sets, const uint8_t* bytes, int32_t* locations) {
    parallel_for(n_threads, sets.n_sets, 10 * double(sets.n_pool), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            decode_set(bytes + i * sets.capacity, sets.capacity, sets.n_bits, sets.n_pool, locations + i * sets.n_bits);
    });
}

}  // namespace topsign
