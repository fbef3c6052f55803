// Levels of codes: the int8 values that queries are multiplied with.
#pragma once

#include <vector>

#include "../core/blocks.h"
#include "../core/kept.h"
#include "ring.h"

namespace topsign {
namespace {

// Bytes of a code without its factor, which codes may have although scores do not use it.
inline int64_t plain_bytes(const ts_scoring& scoring) {
    switch (scoring.kind) {
        case TS_SIGNS:
            return ceil_div(scoring.width, 8);
        case TS_GROUPS:
            return scoring.width / 16;
        case TS_RING:
            return scoring.ring->n_steps / 2;
        default:
            return Layout(scoring.layout).code_bytes();
    }
}

// Levels of the eight signs of every byte.
struct SignLevels {
    int8_t of[256][8] = {};
    constexpr SignLevels() {
        for (int byte = 0; byte < 256; ++byte)
            for (int bit = 0; bit < 8; ++bit) of[byte][bit] = byte >> bit & 1 ? 1 : -1;
    }
};
constexpr SignLevels kSigns;

// Decodes rows of bytes, with kCodePadding readable bytes after each. Arbitrary bytes are safe.
class LevelDecoder {
   public:
    explicit LevelDecoder(const ts_scoring& scoring)
        : scoring_(scoring), kept_(scoring.kind == TS_KEPT ? scoring.layout.n_bits : 0) {}

    void decode(const uint8_t* code, int8_t* out) {
        switch (scoring_.kind) {
            case TS_SIGNS:
                for (int64_t b = 0; b < scoring_.width / 8; ++b) std::memcpy(out + 8 * b, kSigns.of[code[b]], 8);
                for (int64_t i = scoring_.width / 8 * 8; i < scoring_.width; ++i) out[i] = get_bit(code, i) ? 1 : -1;
                break;
            case TS_GROUPS:
                std::memset(out, 0, size_t(scoring_.width));
                for (int64_t g = 0; g < scoring_.width / 8; ++g) {
                    const int nibble = code[g / 2] >> (g % 2 * 4) & 15;
                    out[8 * g + (nibble & 7)] = nibble & 8 ? 1 : -1;
                }
                break;
            case TS_RING:
                ring_levels(*scoring_.ring, code, out);
                break;
            default:
                std::memset(out, 0, size_t(scoring_.width));
                unpack_code(scoring_.layout, code, kept_.data());
                for (const uint32_t one : kept_) out[one & ~kNegative] = one & kNegative ? -1 : 1;
        }
    }

   private:
    const ts_scoring& scoring_;
    std::vector<uint32_t> kept_;
};

inline void decode_levels(int n_threads, const ts_scoring& scoring, const uint8_t* codes, int64_t n_codes,
                          int8_t* out) {
    parallel_for(n_threads, n_codes, double(scoring.width), [&](int64_t begin, int64_t end) {
        LevelDecoder decoder(scoring);
        std::vector<uint8_t> code(scoring.code_bytes + kCodePadding);
        for (int64_t i = begin; i < end; ++i) {
            std::memcpy(code.data(), codes + i * scoring.code_bytes, size_t(scoring.code_bytes));
            decoder.decode(code.data(), out + i * scoring.width);
        }
    });
}

// Sums and factors of a block are in this order: even codes, then odd ones.
constexpr int split_place(int code) { return code / 2 + code % 2 * int(kBlock / 2); }
constexpr int code_at(int place) { return 2 * (place % int(kBlock / 2)) + place / int(kBlock / 2); }

inline float factor_of(const ts_scoring& scoring, uint32_t number) {
    if (number == 0) return 0.f;
    if (scoring.factor == TS_COSINE_FACTOR) return 0x1p14f / float(number);
    float power;
    const uint32_t bits = ((number >> 9) + 127 - 64) << 23;
    std::memcpy(&power, &bits, sizeof power);
    return scoring.fractions[number & 511] * power;
}

// Factor of a code of a block.
inline float factor_at(const ts_scoring& scoring, const uint8_t* block, int lane) {
    if (scoring.factor == TS_NO_FACTOR) return 1.f;
    const uint8_t* const low = block + (scoring.code_bytes - 2) * kBlock + lane;
    return factor_of(scoring, uint32_t(low[0] | low[kBlock] << 8));
}

// Numbers of the factors of a block, in the order of sums.
inline void factor_numbers(const ts_scoring& scoring, const uint8_t* block, int32_t* numbers) {
    const uint8_t* const low = block + (scoring.code_bytes - 2) * kBlock;
    const uint8_t* const high = low + kBlock;
    for (int i = 0; i < int(kBlock) / 2; ++i) {
        numbers[i] = low[2 * i] | high[2 * i] << 8;
        numbers[i + int(kBlock) / 2] = low[2 * i + 1] | high[2 * i + 1] << 8;
    }
}

inline float score_of(const ts_scoring& scoring, const ts_queries& queries, int64_t q, int32_t sum, float factor) {
    const float score = float(sum) * queries.scales[q] + queries.constants[q];
    return scoring.factor == TS_NO_FACTOR ? score : score * factor;
}

}  // namespace
}  // namespace topsign
