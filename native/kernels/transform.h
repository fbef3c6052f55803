// The randomised Hadamard rotation: random signs, then a fast Walsh-Hadamard transform, a few rounds.
//
// One round, for a power of two n: multiply by random signs, transform, scale by 1/sqrt(n). For any other
// n, with p the largest power of two below it: random signs; transform and scale by 1/sqrt(p) the first p
// coordinates (even rounds) or the last p (odd rounds); then replace the pairs (x[i], x[n - n/2 + i]),
// i < n/2, by their sum and difference over sqrt(2). Every step is orthonormal; the result is multiplied by
// sqrt(n) so that each projection behaves like a standard normal one.
//
// Butterflies run by ascending stride, so that all paths round the same way.
#pragma once

#include <cmath>

#include "../core/bits.h"
#include "../core/threads.h"
#include "vec.h"

namespace topsign {
namespace {

inline int64_t largest_power_of_two(int64_t n) {
    int64_t p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

inline void transform_plainly(float* x, int64_t n) {
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t i = 0; i < n; i += 2 * h)
            for (int64_t j = i; j < i + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}

// All levels over Radix registers, unrolled at compile time so that they stay in registers.
template <int Radix, int Stride = 1, class V>
TOPSIGN_INLINE void butterflies(V (&v)[Radix]) {
    if constexpr (Stride < Radix) {
#pragma GCC unroll 8
        for (int i = 0; i < Radix / 2; ++i) {
            const int low = i / Stride * 2 * Stride + i % Stride;
            const V a = v[low], b = v[low + Stride];
            v[low] = a + b;
            v[low + Stride] = a - b;
        }
        butterflies<Radix, 2 * Stride>(v);
    }
}

// The levels inside one register: a + b in the lower lane, a + (-b) in the upper.
template <int Stride = 1, class V>
TOPSIGN_INLINE V within_register(V v) {
    if constexpr (Stride < kLanes<V>) {
        using Bits = Vec<uint32_t, kLanes<V>>;
        Bits upper{};
        for (int i = 0; i < kLanes<V>; ++i) upper[i] = i & Stride ? 0x80000000u : 0;
        return within_register<2 * Stride>(swapped<Stride>(v) + cast<V>(cast<Bits>(v) ^ upper));
    } else {
        return v;
    }
}

// One pass of log2(Radix) levels, starting at stride h.
template <int Radix, class V>
void pass(float* x, int64_t n, int64_t h) {
    for (int64_t i = 0; i < n; i += Radix * h)
        for (int64_t j = i; j < i + h; j += kLanes<V>) {
            V v[Radix];
            for (int q = 0; q < Radix; ++q) v[q] = load<V>(x + j + q * h);
            butterflies(v);
            for (int q = 0; q < Radix; ++q) store(x + j + q * h, v[q]);
        }
}

template <class V>
constexpr int64_t kFirstPass = 8 * kLanes<V>;  // values for which the first pass computes all levels

// First pass; loaded(i) reads the register at value i.
template <class Isa, class Load>
void transform_loaded(float* x, int64_t n, const Load& loaded) {
    using V = Vec<float, Isa::kBytes / 4>;
    for (int64_t i = 0; i < n; i += kFirstPass<V>) {
        V v[8];
        for (int q = 0; q < 8; ++q) v[q] = within_register(loaded(i + kLanes<V> * q));
        butterflies(v);
        for (int q = 0; q < 8; ++q) store(x + i + kLanes<V> * q, v[q]);
    }
    int64_t h = kFirstPass<V>;
    for (; 8 * h <= n; h *= 8) pass<8, V>(x, n, h);
    if (4 * h == n) pass<4, V>(x, n, h);
    if (2 * h == n) pass<2, V>(x, n, h);
}

template <class Isa>
void transform(float* x, int64_t n) {
    using V = Vec<float, Isa::kBytes / 4>;
    if (n < kFirstPass<V>) return transform_plainly(x, n);
    transform_loaded<Isa>(x, n, [=](int64_t i) { return load<V>(x + i); });
}

// Loads x[i...] times scale, negated if the sign bit is 0.
template <class V>
TOPSIGN_INLINE V flipped(const float* x, int64_t i, const uint8_t* signs, V scale) {
    using Bits = Vec<uint32_t, kLanes<V>>;
    uint32_t word = 0;
    std::memcpy(&word, signs + i / 8, kLanes<V> < 8 ? 1 : kLanes<V> / 8);
    const Bits here = splat<Bits>(word >> (i & 7)) & powers_of_two<Bits>();
    const Bits negative = cast<Bits>(here == Bits{}) & splat<Bits>(0x80000000u);
    return cast<V>(cast<Bits>(load<V>(x + i) * scale) ^ negative);
}

template <class Isa>
void flip(float* x, int64_t n, const uint8_t* signs, float scale) {
    using V = Vec<float, Isa::kBytes / 4>;
    int64_t i = 0;
    for (; i + kLanes<V> <= n; i += kLanes<V>) store(x + i, flipped(x, i, signs, splat<V>(scale)));
    for (; i < n; ++i) x[i] *= get_bit(signs, i) ? scale : -scale;
}

inline void scale_by(float* x, int64_t n, float scale) {
    for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

inline void mix_halves(float* x, int64_t n) {
    const float scale = float(std::sqrt(0.5));
    float* y = x + (n - n / 2);
    for (int64_t i = 0; i < n / 2; ++i) {
        const float a = x[i], b = y[i];
        x[i] = (a + b) * scale;
        y[i] = (a - b) * scale;
    }
}

template <class Isa>
struct Rotation {
    int64_t n;
    const uint8_t* signs;
    int64_t n_rounds;
    int64_t p = largest_power_of_two(n);
    int64_t bytes = ceil_div(n, 8);
    float shrink = float(1.0 / std::sqrt(double(p)));

    float* block(float* x, int64_t round) const { return x + (round % 2 ? n - p : 0); }

    // The last transform of a power of two is not scaled, which gives the factor sqrt(n).
    void forward(const float* signal, float* x) const {
        using V = Vec<float, Isa::kBytes / 4>;
        const bool at_once = p == n && n >= kFirstPass<V>;  // signs are applied as the first pass reads
        if (!at_once || n_rounds == 0) std::memcpy(x, signal, sizeof(float) * n);
        for (int64_t r = 0; r < n_rounds; ++r) {
            const uint8_t* const of_round = signs + r * bytes;
            const float scale = p == n && r > 0 ? shrink : 1.f;
            if (at_once) {
                const float* const from = r == 0 ? signal : x;
                transform_loaded<Isa>(x, n, [=](int64_t i) { return flipped(from, i, of_round, splat<V>(scale)); });
                continue;
            }
            flip<Isa>(x, n, of_round, scale);
            transform<Isa>(block(x, r), p);
            if (p < n) {
                scale_by(block(x, r), p, shrink);
                mix_halves(x, n);
            }
        }
        if (p < n) scale_by(x, n, float(std::sqrt(double(n))));
    }

    void transposed(const float* signal, float* x) const {
        std::memcpy(x, signal, sizeof(float) * n);
        for (int64_t r = n_rounds - 1; r >= 0; --r) {
            if (p < n) {
                mix_halves(x, n);
                scale_by(block(x, r), p, shrink);
            }
            transform<Isa>(block(x, r), p);
            flip<Isa>(x, n, signs + r * bytes, p == n && r > 0 ? shrink : 1.f);
        }
        if (p < n) scale_by(x, n, float(std::sqrt(double(n))));
    }
};

template <class Isa>
void rotate(int n_threads, const ts_rotation& asked) {
    const int64_t n = asked.signals.width;
    const Rotation<Isa> rotation{n, asked.signs, asked.n_rounds};
    parallel_for(n_threads, asked.signals.count, 0.6 * double(n * asked.n_rounds), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float* const signal = asked.signals.values + i * n;
            float* const x = asked.out + i * n;
            asked.transpose ? rotation.transposed(signal, x) : rotation.forward(signal, x);
        }
    });
}

}  // namespace
}  // namespace topsign
