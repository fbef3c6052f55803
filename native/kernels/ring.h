// Trellis codes: tail-biting trellis-coded quantisation with steps of a nibble.
//
// A code is a ring of nibbles; byte b has nibble 2b in its high and nibble 2b + 1 in its low bits. Step s reads the
// window of nibbles s - 1 and s, whose first nibble is the state before the step. All arithmetic of the encoder is in
// float32, in the order written here, so codes are the same bits on every path and device.
#pragma once

#include <cmath>
#include <vector>

#include "../core/threads.h"
#include "../topsign.h"
#include "vec.h"

namespace topsign {
namespace {

constexpr int kStates = 16, kWindows = 256;

// Calls visit(step, window) for each step of a code, in order.
template <class Byte, class Visit>
TOPSIGN_INLINE void for_each_window(int64_t n_steps, const Byte& byte, const Visit& visit) {
    uint32_t before = byte(n_steps / 2 - 1);
    for (int64_t b = 0; b < n_steps / 2; ++b) {
        const uint32_t here = byte(b);
        visit(2 * b, (before & 15) << 4 | here >> 4);
        visit(2 * b + 1, here);
        before = here;
    }
}

inline double ring_square(const ts_ring& ring, const uint8_t* code) {
    double square = ring.constant;
    for_each_window(
        ring.n_steps, [&](int64_t b) { return uint32_t(code[b]); },
        [&](int64_t step, uint32_t window) { square += ring.squares[step * kWindows + window]; });
    return square;
}

inline double ring_norm(const ts_ring& ring, const uint8_t* code) {
    return std::sqrt(std::max(0.0, ring_square(ring, code)));
}

inline void ring_norms(int n_threads, const ts_ring& ring, const uint8_t* codes, int64_t n_codes, int64_t stride,
                       double* out) {
    parallel_for(n_threads, n_codes, double(ring.n_steps), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = ring_norm(ring, codes + i * stride);
    });
}

// Levels of one code, in the order of the coded coordinates.
inline void ring_levels(const ts_ring& ring, const uint8_t* code, int8_t* out) {
    for_each_window(
        ring.n_steps, [&](int64_t b) { return uint32_t(code[b]); },
        [&](int64_t step, uint32_t window) {
            const int64_t first = ring.first[step], n = ring.first[step + 1] - first;
            std::memcpy(out + first, ring.levels + ring.books[step] + int64_t(window) * n, size_t(n));
        });
}

// Viterbi encoder of one thread.
template <class Isa>
class RingEncoder {
    using V = Vec<float, Isa::kBytes / 4>;
    using Ints = Vec<int32_t, Isa::kBytes / 4>;
    static constexpr int kWidth = kLanes<V>, kVectors = kStates / kWidth;

   public:
    // `squares` are the costs of windows for coordinates of zero, (n_steps, 256).
    RingEncoder(const ts_ring& ring, const std::vector<float>& squares)
        : ring_(ring), squares_(squares), costs_(ring.n_steps * kWindows), from_(ring.n_steps * kStates) {}

    static std::vector<float> square_costs(const ts_ring& ring) {
        std::vector<float> squares(ring.n_steps * kWindows);
        for (int64_t step = 0; step < ring.n_steps; ++step)
            for (int64_t c = ring.first[step]; c < ring.first[step + 1]; ++c)
                for (int window = 0; window < kWindows; ++window) {
                    const int level = ring.columns[ring.books[step] + (c - ring.first[step]) * kWindows + window];
                    squares[step * kWindows + window] += ring.weights[c] * float(level * level);
                }
        return squares;
    }

    // Writes a code and its factor.
    void encode(const float* coordinates, uint8_t* code) {
        price(coordinates);
        alignas(64) float totals[kStates] = {};
        const int64_t middle = ring_.n_steps / 2;
        run(middle, totals);
        int start = int(std::min_element(totals, totals + kStates) - totals);
        for (int64_t step = middle - 1; step >= 0; --step) start = from_[step * kStates + start];
        std::fill(totals, totals + kStates, kUnreachable);
        totals[start] = 0;
        run(0, totals);
        int state = start;
        for (int64_t step = ring_.n_steps - 1; step >= 0; --step) {
            uint8_t& byte = code[step / 2];
            byte = uint8_t(step % 2 ? state : byte | state << 4);
            state = from_[step * kStates + state];
        }
        const double number = std::nearbyint(ring_norm(ring_, code) * 0x1p14);
        const auto factor = uint16_t(std::min(65535.0, number));
        std::memcpy(code + ring_.n_steps / 2, &factor, sizeof factor);
    }

   private:
    static constexpr float kUnreachable = 1e30f;

    // Costs of all windows.
    void price(const float* coordinates) {
        for (int64_t step = 0; step < ring_.n_steps; ++step) {
            const int8_t* column = ring_.columns + ring_.books[step];
            const float* const squares = squares_.data() + step * kWindows;
            float* const costs = costs_.data() + step * kWindows;
            const int64_t first = ring_.first[step], end = ring_.first[step + 1];
            constexpr int kPart = 4 * kWidth;  // windows whose costs stay in registers
            for (int part = 0; part < kWindows; part += kPart) {
                V sums[4];
                for (int v = 0; v < 4; ++v) sums[v] = load<V>(squares + part + v * kWidth);
                for (int64_t c = first; c < end; ++c) {
                    const V slope = splat<V>((-2.f * ring_.weights[c]) * (coordinates[c] * ring_.scales[c]));
                    const int8_t* const levels = column + (c - first) * kWindows + part;
                    for (int v = 0; v < 4; ++v) sums[v] = sums[v] + slope * Isa::to_floats(levels + v * kWidth);
                }
                for (int v = 0; v < 4; ++v) store(costs + part + v * kWidth, sums[v]);
            }
        }
    }

    // Cheapest paths once around the ring, from the states before step `first` at these costs; of equal costs the lower
    // state before a step wins.
    void run(int64_t first, float* totals) {
        V best[kVectors];
        for (int64_t i = 0; i < ring_.n_steps; ++i) {
            const int64_t step = (first + i) % ring_.n_steps;
            const float* const costs = costs_.data() + step * kWindows;
            Ints from[kVectors] = {};
            for (int v = 0; v < kVectors; ++v) best[v] = splat<V>(totals[0]) + load<V>(costs + v * kWidth);
            for (int before = 1; before < kStates; ++before)
                for (int v = 0; v < kVectors; ++v) {
                    const V other = splat<V>(totals[before]) + load<V>(costs + before * kStates + v * kWidth);
                    const Ints less = other < best[v];
                    from[v] = (from[v] & ~less) | (splat<Ints>(before) & less);
                    best[v] = cast<V>((cast<Ints>(best[v]) & ~less) | (cast<Ints>(other) & less));
                }
            for (int v = 0; v < kVectors; ++v) {
                store(totals + v * kWidth, best[v]);
                for (int lane = 0; lane < kWidth; ++lane)
                    from_[step * kStates + v * kWidth + lane] = uint8_t(from[v][lane]);
            }
        }
    }

    const ts_ring& ring_;
    const std::vector<float>& squares_;
    std::vector<float> costs_;
    std::vector<uint8_t> from_;  // state before each state
};

template <class Isa>
void ring_encode(int n_threads, const ts_ring& ring, const ts_rows& rows, uint8_t* out) {
    const std::vector<float> squares = RingEncoder<Isa>::square_costs(ring);
    const double each = 25.0 * double(ring.n_steps) + 10.0 * double(ring.n_coded);
    parallel_for(n_threads, rows.count, each, [&](int64_t begin, int64_t end) {
        RingEncoder<Isa> encoder(ring, squares);
        for (int64_t i = begin; i < end; ++i)
            encoder.encode(rows.values + i * rows.width, out + i * (ring.n_steps / 2 + 2));
    });
}

}  // namespace
}  // namespace topsign
