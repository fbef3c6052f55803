// Plain C++ implementations of all operations, for registers of kSize bytes. Instruction sets derive from it and
// override the faster ones.
#pragma once

#include "../kernels/originals.h"
#include "../kernels/select.h"
#include "../kernels/tables.h"

namespace topsign {
namespace {

template <class Isa, int kSize>
struct Plain {
    static constexpr int kBytes = kSize;
    using V = Vec<uint8_t, kBytes>;
    using Ints = Vec<int32_t, kBytes / 4>;
    using Floats = Vec<float, kBytes / 4>;
    using Nibbles = PlainNibbles<Isa>;
    using Rings = PlainRings<Isa>;

    static constexpr int64_t kFewRings = 4;    // queries up to which rings are compared by tables
    static constexpr int kProductQueries = 2;  // queries multiplied at a time
    static constexpr double kRingCost = 20;    // nanoseconds of a block and step
    static constexpr double kProductCost = 2;  // nanoseconds of a block and coordinate
    static constexpr int32_t kBias = 0;        // what biased() adds to levels

    // Writes those of kCompressed magnitudes that reach `floor`, and their rows; returns their number.
    static constexpr int64_t kCompressed = 4;
    static TOPSIGN_INLINE int64_t compress(const float* y, int32_t row, int32_t floor, int32_t* magnitudes,
                                           int32_t* rows) {
        int64_t n = 0;
        for (int i = 0; i < kCompressed; ++i) {  // without branches
            const int32_t value = magnitude_bits(y[i]);
            magnitudes[n] = value;
            rows[n] = row + i;
            n += value >= floor;
        }
        return n;
    }

    // Writes those of kCompressed rows whose magnitude reaches `least`; may overwrite `rows`. Returns their number.
    static TOPSIGN_INLINE int64_t compress_rows(const int32_t* magnitudes, const int32_t* rows, int32_t least,
                                                int32_t* kept) {
        int64_t n = 0;
        for (int i = 0; i < kCompressed; ++i) {
            kept[n] = rows[i];
            n += magnitudes[i] >= least;
        }
        return n;
    }

    // Widens floats to doubles.
    template <class To, class From>
    static TOPSIGN_INLINE To widen(From values) {
        return convert<To>(values);
    }

    // Widens eight numbers of 16 bits.
    static TOPSIGN_INLINE void widen_halves(const uint8_t* from, float* to) {
        for (int i = 0; i < 8; ++i) to[i] = half_value(load<uint16_t>(from + 2 * i));
    }

    static TOPSIGN_INLINE Ints to_ints(const int8_t* levels) {
        Ints values{};
        for (int i = 0; i < kLanes<Ints>; ++i) values[i] = levels[i];
        return values;
    }
    static TOPSIGN_INLINE Floats to_floats(const int8_t* levels) { return convert<Floats>(Isa::to_ints(levels)); }

    // Writes the low bytes of integers.
    static TOPSIGN_INLINE void narrow(Ints values, uint8_t* to) {
        for (int i = 0; i < kLanes<Ints>; ++i) to[i] = uint8_t(values[i]);
    }

    // Looks up bytes below 16, and any bytes.
    static TOPSIGN_INLINE V look_up_16(const uint8_t* table, V index) { return look_up_256(table, index); }
    static TOPSIGN_INLINE V look_up_256(const uint8_t* table, V index) {
        uint8_t bytes[kBytes];
        store(bytes, index);
        for (int i = 0; i < kBytes; ++i) bytes[i] = table[bytes[i]];
        return load<V>(bytes);
    }

    // Levels as add_byte_products takes them.
    static TOPSIGN_INLINE V biased(V levels) { return levels; }

    // Adds the products of four bytes above -128 and four signed ones in each lane.
    static TOPSIGN_INLINE Ints add_byte_products(Ints sum, V levels, Ints values) {
        const Ints x = cast<Ints>(levels);
        for (int shift = 24; shift >= 0; shift -= 8) sum = sum + (x << shift >> 24) * (values << shift >> 24);
        return sum;
    }
};

}  // namespace
}  // namespace topsign
