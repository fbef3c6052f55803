// The randomised Hadamard rotation: random signs, then a fast Walsh-Hadamard transform, a few rounds.
//
// One round, for a power of two n: multiply by random signs, transform, scale by 1/sqrt(n). For any other
// n, with p the largest power of two below it: random signs; transform and scale by 1/sqrt(p) the first p
// coordinates (even rounds) or the last p (odd rounds); then replace the pairs (x[i], x[n - n/2 + i]),
// i < n/2, by their sum and difference over sqrt(2). Every step is orthonormal; the result is multiplied by
// sqrt(n) so that each projection behaves like a standard normal one.
//
// Butterflies run by ascending stride, so that every path rounds alike.
#include <cmath>

#include "common.h"

namespace topsign {
namespace {

int64_t largest_power_of_two(int64_t n) {
    int64_t p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

void transform_scalar(float* x, int64_t n) {
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t i = 0; i < n; i += 2 * h) {
            float* __restrict lower = x + i;
            float* __restrict upper = x + i + h;
            for (int64_t j = 0; j < h; ++j) {
                const float a = lower[j], b = upper[j];
                lower[j] = a + b;
                upper[j] = a - b;
            }
        }
}

// x[i] becomes +-(x[i] * scale), plus where the bit is 1.
void flip_scalar(float* x, int64_t begin, int64_t n, const uint8_t* signs, float scale) {
    const float scales[2] = {-scale, scale};
    for (int64_t i = begin; i < n; ++i) x[i] *= scales[get_bit(signs, i)];
}

#if TOPSIGN_X86
TOPSIGN_AVX2_INLINE void butterfly(__m256& a, __m256& b) {
    const __m256 sum = _mm256_add_ps(a, b);
    b = _mm256_sub_ps(a, b);
    a = sum;
}

// All levels over Radix registers, unrolled at compile time so that they stay in registers.
template <int Radix, int Stride = 1>
TOPSIGN_AVX2_INLINE void butterflies(__m256 (&v)[Radix]) {
    if constexpr (Stride < Radix) {
#pragma GCC unroll 8
        for (int i = 0; i < Radix / 2; ++i) {
            const int low = i / Stride * 2 * Stride + i % Stride;
            butterfly(v[low], v[low + Stride]);
        }
        butterflies<Radix, 2 * Stride>(v);
    }
}

// The levels of stride 1, 2 and 4, inside one register: a + b in the lower lane, a + (-b) in the upper.
TOPSIGN_AVX2_INLINE __m256 within_register(__m256 v) {
    const __m256 odd = _mm256_setr_ps(0.f, -0.f, 0.f, -0.f, 0.f, -0.f, 0.f, -0.f);
    const __m256 second_pair = _mm256_setr_ps(0.f, 0.f, -0.f, -0.f, 0.f, 0.f, -0.f, -0.f);
    const __m256 upper_half = _mm256_setr_ps(0.f, 0.f, 0.f, 0.f, -0.f, -0.f, -0.f, -0.f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xB1), _mm256_xor_ps(v, odd));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4E), _mm256_xor_ps(v, second_pair));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, upper_half));
}

// One pass of log2(Radix) levels, from stride h on.
template <int Radix>
TOPSIGN_AVX2 void pass(float* x, int64_t n, int64_t h) {
    for (int64_t i = 0; i < n; i += Radix * h)
        for (int64_t j = i; j < i + h; j += 8) {
            __m256 v[Radix];
            for (int q = 0; q < Radix; ++q) v[q] = _mm256_loadu_ps(x + j + q * h);
            butterflies(v);
            for (int q = 0; q < Radix; ++q) _mm256_storeu_ps(x + j + q * h, v[q]);
        }
}

TOPSIGN_AVX2 void transform_avx2(float* x, int64_t n) {
    if (n < 64) return transform_scalar(x, n);
    for (int64_t i = 0; i < n; i += 64) {
        __m256 v[8];
        for (int q = 0; q < 8; ++q) v[q] = within_register(_mm256_loadu_ps(x + i + 8 * q));
        butterflies(v);
        for (int q = 0; q < 8; ++q) _mm256_storeu_ps(x + i + 8 * q, v[q]);
    }
    int64_t h = 64;
    for (; 8 * h <= n; h *= 8) pass<8>(x, n, h);
    if (4 * h == n) pass<4>(x, n, h);
    if (2 * h == n) pass<2>(x, n, h);
}

TOPSIGN_AVX2 void flip_avx2(float* x, int64_t n, const uint8_t* signs, float scale) {
    const __m256 scales = _mm256_set1_ps(scale);
    const __m256i top_bit = _mm256_set1_epi32(INT32_MIN);
    const __m256i lanes = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        uint32_t word;
        std::memcpy(&word, signs + i / 8, 4);
        const __m256i negative = _mm256_set1_epi32(int32_t(~word));
        for (int g = 0; g < 4; ++g) {
            const __m256i shift = _mm256_sub_epi32(lanes, _mm256_set1_epi32(8 * g));
            const __m256i mask = _mm256_and_si256(_mm256_sllv_epi32(negative, shift), top_bit);
            float* at = x + i + 8 * g;
            const __m256 value = _mm256_mul_ps(_mm256_loadu_ps(at), scales);
            _mm256_storeu_ps(at, _mm256_xor_ps(value, _mm256_castsi256_ps(mask)));
        }
    }
    flip_scalar(x, i, n, signs, scale);
}
#endif

void transform(int path, float* x, int64_t n) {
#if TOPSIGN_X86
    if (path == kAvx2) return transform_avx2(x, n);
#endif
    (void)path;
    transform_scalar(x, n);
}

void flip(int path, float* x, int64_t n, const uint8_t* signs, float scale) {
#if TOPSIGN_X86
    if (path == kAvx2) return flip_avx2(x, n, signs, scale);
#endif
    (void)path;
    flip_scalar(x, 0, n, signs, scale);
}

void scale_by(float* x, int64_t n, float scale) {
    for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

void mix_halves(float* x, int64_t n) {
    const float scale = float(std::sqrt(0.5));
    float* y = x + (n - n / 2);
    for (int64_t i = 0; i < n / 2; ++i) {
        const float a = x[i], b = y[i];
        x[i] = (a + b) * scale;
        y[i] = (a - b) * scale;
    }
}

struct Rotation {
    int path;
    int64_t n;
    const uint8_t* signs;
    int64_t n_rounds;
    int64_t p = largest_power_of_two(n);
    int64_t bytes = ceil_div(n, 8);
    float shrink = float(1.0 / std::sqrt(double(p)));

    float* block(float* x, int64_t round) const { return x + (round % 2 ? n - p : 0); }

    // The last transform of a power of two stays unscaled: that is the factor sqrt(n).
    void forward(float* x) const {
        for (int64_t r = 0; r < n_rounds; ++r) {
            flip(path, x, n, signs + r * bytes, p == n && r > 0 ? shrink : 1.f);
            transform(path, block(x, r), p);
            if (p < n) {
                scale_by(block(x, r), p, shrink);
                mix_halves(x, n);
            }
        }
        if (p < n) scale_by(x, n, float(std::sqrt(double(n))));
    }

    void transposed(float* x) const {
        for (int64_t r = n_rounds - 1; r >= 0; --r) {
            if (p < n) {
                mix_halves(x, n);
                scale_by(block(x, r), p, shrink);
            }
            transform(path, block(x, r), p);
            flip(path, x, n, signs + r * bytes, p == n && r > 0 ? shrink : 1.f);
        }
        if (p < n) scale_by(x, n, float(std::sqrt(double(n))));
    }
};

double square_norm_scalar(const float* x, int64_t n) {
    LaneSum sum;
    for (int64_t i = 0; i < n; ++i) sum.add(i, double(x[i]) * double(x[i]));
    return sum.total();
}

#if TOPSIGN_X86
TOPSIGN_AVX2 double square_norm_avx2(const float* x, int64_t n) {
    __m256d lanes[4] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int g = 0; g < 4; ++g) {
            const __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * g));
            lanes[g] = _mm256_add_pd(lanes[g], _mm256_mul_pd(v, v));
        }
    LaneSum sum;
    for (int g = 0; g < 4; ++g) _mm256_storeu_pd(sum.lane + 4 * g, lanes[g]);
    for (; i < n; ++i) sum.add(i, double(x[i]) * double(x[i]));
    return sum.total();
}
#endif

}  // namespace
}  // namespace topsign

using namespace topsign;

int ts_rotate(int path, int n_threads, const float* signals, int64_t n_signals, int64_t n_features,
              const uint8_t* signs, int64_t n_rounds, int64_t transpose, float* out) {
    return guarded([&] {
        const Rotation rotation{path, n_features, signs, n_rounds};
        parallel_for(n_threads, n_signals, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                float* x = out + i * n_features;
                std::memcpy(x, signals + i * n_features, sizeof(float) * n_features);
                transpose ? rotation.transposed(x) : rotation.forward(x);
            }
        });
    });
}

int ts_square_norms(int path, int n_threads, const float* signals, int64_t n_signals, int64_t n_features,
                    double* out) {
    return guarded([&] {
        parallel_for(n_threads, n_signals, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const float* x = signals + i * n_features;
#if TOPSIGN_X86
                if (path == kAvx2) {
                    out[i] = square_norm_avx2(x, n_features);
                    continue;
                }
#endif
                (void)path;
                out[i] = square_norm_scalar(x, n_features);
            }
        });
    });
}

int ts_magnitude_sums(int, int n_threads, const float* projected, int64_t n_signals, int64_t n_pool, double* out) {
    return guarded([&] {
        parallel_for(n_threads, n_signals, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                LaneSum sum;
                const float* x = projected + i * n_pool;
                int64_t j = 0;
                for (; j + LaneSum::kLanes <= n_pool; j += LaneSum::kLanes)
                    for (int lane = 0; lane < LaneSum::kLanes; ++lane) sum.lane[lane] += std::fabs(double(x[j + lane]));
                for (; j < n_pool; ++j) sum.add(j, std::fabs(double(x[j])));
                out[i] = sum.total();
            }
        });
    });
}
