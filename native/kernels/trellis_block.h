// Decoder of trellis codes: a block has as many entries as a register has bytes.
#pragma once

#include "trellis.h"

namespace topsign {
namespace {

// The square norm of reconstructions, sum of (quadratic z^2 + linear z) over levels z = 2 b - 127 of bytes b. It is
// computed as constant - 4 sum of quadratic b (127 - b) + 2 sum of linear b, whose products have fewer bits.
class NormSums {
   public:
    NormSums(const ts_trellis_norm& norm, int64_t n_coded) : norm(norm), is_even(n_coded % 4 == 0 && n_coded > 0) {
        for (int64_t i = 0; i < n_coded; ++i) is_wide |= norm.linear[i] != int16_t(norm.linear[i]);
        const auto word = [](int low, int high) { return int32_t(uint16_t(low) | uint32_t(uint16_t(high)) << 16); };
        for (int64_t first = 0; first < n_coded; first += 4) {
            int quadratic[4] = {}, linear[4] = {}, high[4] = {};
            for (int64_t i = first; i < std::min(first + 4, n_coded); ++i) {
                quadratic[i - first] = norm.quadratic[i];
                high[i - first] = is_wide ? (norm.linear[i] + 128) >> 8 : 0;
                linear[i - first] = norm.linear[i] - 256 * high[i - first];
                constant += uint32_t(kMiddle * kMiddle * norm.quadratic[i] - kMiddle * norm.linear[i]);
                is_linear |= norm.linear[i] != 0;
                is_even &= norm.quadratic[i] == norm.quadratic[0];
            }
            groups.push_back({word(quadratic[0], quadratic[2]), word(quadratic[1], quadratic[3]),
                              word(linear[0], linear[2]), word(linear[1], linear[3]), word(high[0], high[2]),
                              word(high[1], high[3])});
        }
    }

    struct Group {
        int32_t quadratic_even, quadratic_odd, linear_even, linear_odd, high_even, high_odd;
    };
    const ts_trellis_norm norm;
    std::vector<Group> groups;
    uint32_t constant = 0;
    bool is_linear = false, is_even;  // even: all coordinates have the same coefficient, and groups are full
    bool is_wide = false;             // linear coefficients exceed 16 bits and are split into high and low parts
};

// Decoding tables of one design, prepared once per call and shared by its threads.
struct TrellisPlan {
    // How the window of a coordinate is extracted from 16 bits of the ring, which also serve some later coordinates:
    // `mask` keeps the window, and the multiplier includes the shift to the top, modulo 2^16. Numbers are stored twice
    // in 32 bits.
    struct Reading {
        int32_t word = -1, shift = 0;  // start of the next 16 bits, if they are loaded here
        uint32_t mask = 0, multiplier = 0, addend = 0;
    };

    explicit TrellisPlan(const ts_trellis& trellis)
        : trellis(trellis),
          n_groups(ceil_div(trellis.n_coded, 4)),
          n_words((trellis.n_coded ? trellis.offsets[trellis.n_coded - 1] : 0) / 16 + 2),
          n_read(words_read(trellis, n_words)),
          readings(4 * n_groups),
          norm(trellis.norm, trellis.n_coded) {
        for (int i = 0; i < kLevels; ++i) levels[i] = uint8_t((trellis.levels[i] + kMiddle) / 2);
        const auto twice = [](uint32_t number) { return number * 0x10001u; };
        int begin = 0;
        for (int64_t i = 0; i < trellis.n_coded; ++i) {
            Reading& reading = readings[i];
            const int offset = trellis.offsets[i];
            if (i == 0 || offset - begin > 16 - int(trellis.window)) {
                begin = offset;
                reading.word = offset / 16;
                reading.shift = offset % 16;
            }
            const int ahead = offset - begin;
            reading.mask = twice(uint16_t(0xffff << (16 - trellis.window)) >> ahead);
            reading.multiplier = twice(uint16_t(trellis.multipliers[i % kSequences] << ahead));
            reading.addend = twice(trellis.addends[i % kSequences]);
        }
    }

    static int64_t words_read(const ts_trellis& trellis, int64_t n_words) {
        const int64_t n = std::min({n_words, ceil_div(trellis.n_bits, 16), trellis.code_bytes / 2});
        return n < 8 ? 0 : n;
    }

    const ts_trellis trellis;
    const int64_t n_groups, n_words;  // groups of four coordinates; 16-bit words of the ring
    const int64_t n_read;             // words read for eight codes at once; 0 if rings are too short
    std::vector<Reading> readings;
    const NormSums norm;
    alignas(64) uint8_t levels[kLevels];
};

// Levels of a block of entries as 7-bit bytes, in groups of four coordinates; the four of an entry share a 32-bit lane.
template <class Isa>
class TrellisBlock {
   public:
    static constexpr int kEntries = Isa::kBytes, kRegisters = 4;
    static constexpr int kWidth = Isa::kBytes / 4;  // entries in a register of 32-bit lanes
    using V = Vec<uint8_t, Isa::kBytes>;
    using Words = Vec<uint16_t, Isa::kBytes / 2>;
    using Ints = Vec<int32_t, kWidth>;
    using Reals = Vec<float, kWidth>;
    using Shorts = Vec<int16_t, Isa::kBytes / 2>;

    TrellisBlock() {
        // Finds the entry of each lane by sending entry numbers through the same shuffles as levels.
        V numbers{}, lanes[4];
        for (int i = 0; i < kEntries; ++i) numbers[i] = uint8_t(i / 2 + i % 2 * (kEntries / 2));
        Isa::group_bytes(numbers, numbers, numbers, numbers, lanes);
        for (int r = 0; r < kRegisters; ++r)
            for (int i = 0; i < kWidth; ++i) entry_[r * kWidth + i] = lanes[r][4 * i];
    }

    // Selects the design of the following codes.
    void enter(const TrellisPlan& plan) {
        plan_ = &plan;
        ring_.resize(std::max<size_t>(ring_.size(), std::max(unrolled_bytes(plan.trellis), 2 * plan.n_words + 1)));
        words_.fit(plan.n_words * kEntries);
        levels_.fit(plan.n_groups * 4 * kEntries);
    }

    int64_t n_groups() const { return plan_->n_groups; }
    int entry(int lane) const { return entry_[lane]; }
    TOPSIGN_INLINE V levels(int64_t group, int r) const {
        return load<V>(levels_.data() + (group * kRegisters + r) * kEntries);
    }

    // Decodes up to kEntries codes; code(i) returns a pointer.
    template <class Code>
    void decode(const Code& code, int64_t n) {
        for (int64_t e = 0; e < kEntries; e += 8) {
            const uint8_t* eight[8];
            for (int64_t i = 0; i < 8; ++i) eight[i] = code(std::min(e + i, n - 1));
            read(eight, e);
        }
        if (plan_->n_read > 0) wrap_around();
        const auto look_up = Isa::level_table(plan_->levels);
        const uint16_t* const words = words_.data();
        uint8_t* to = levels_.data();
        Words low{}, high{};
        const auto& readings = plan_->readings;
        for (const auto* four = readings.data(); four != readings.data() + readings.size(); four += 4) {
            V picked[4];
            for (int i = 0; i < 4; ++i) {
                const TrellisPlan::Reading& reading = four[i];
                if (reading.word >= 0) {
                    const uint16_t* const at = words + reading.word * kEntries;
                    low = window(at, reading.shift);
                    high = window(at + kEntries / 2, reading.shift);
                }
                const Words mask = both(reading.mask), multiplier = both(reading.multiplier);
                const Words addend = both(reading.addend);
                const Words a = (low & mask) * multiplier + addend, b = (high & mask) * multiplier + addend;
                picked[i] = look_up(cast<V>((a >> 8) | (b & splat<Words>(0xff00))));
            }
            V grouped[4];
            Isa::group_bytes(picked[0], picked[1], picked[2], picked[3], grouped);
            for (int r = 0; r < kRegisters; ++r) store(to + r * kEntries, grouped[r]);
            to += kRegisters * kEntries;
        }
    }

    // Inverse norm of each entry's reconstruction in lane order; zero for empty lanes.
    void inverse_norms(float* out) const {
        const NormSums& norm = plan_->norm;
        Ints sums[kRegisters] = {};
        if (norm.is_wide)
            add_squares<true, true>(norm, sums);
        else if (norm.is_linear)
            add_squares<true>(norm, sums);
        else if (norm.is_even)
            add_equal_squares(norm, sums);
        else
            add_squares<false>(norm, sums);
        for (int r = 0; r < kRegisters; ++r) {
            const Ints sum = splat<Ints>(int32_t(norm.constant)) + sums[r];
            const Reals squares = convert<Reals>(sum) * splat<Reals>(norm.norm.unit) + splat<Reals>(norm.norm.constant);
            const Ints inverse = cast<Ints>(Isa::inverse_root(squares));
            store(out + r * kWidth, inverse & (squares > splat<Reals>(0)));
        }
    }

    int8_t level(int64_t i, int lane) const {
        return int8_t(2 * levels_[i / 4 * kRegisters * kEntries + 4 * lane + i % 4] - kMiddle);
    }

   private:
    static TOPSIGN_INLINE Words both(uint32_t number) { return cast<Words>(splat<Vec<uint32_t, kWidth>>(number)); }
    static TOPSIGN_INLINE Shorts pair(int32_t number) { return cast<Shorts>(splat<Ints>(number)); }

    // b (127 - b), for bytes b of seven bits in words.
    static TOPSIGN_INLINE Shorts product(Shorts b) { return b * (b ^ splat<Shorts>(int16_t(kMiddle))); }

    template <bool kLinear, bool kWide = false>
    TOPSIGN_INLINE void add_squares(const NormSums& norm, Ints (&sums)[kRegisters]) const {
        Ints linear[kRegisters] = {}, high[kRegisters] = {};
        for (int64_t g = 0; g < n_groups(); ++g) {
            const NormSums::Group& group = norm.groups[g];
            const Shorts q_even = pair(group.quadratic_even), q_odd = pair(group.quadratic_odd);
            const Shorts l_even = pair(group.linear_even), l_odd = pair(group.linear_odd);
            const Shorts h_even = pair(group.high_even), h_odd = pair(group.high_odd);
            for (int r = 0; r < kRegisters; ++r) {
                const Shorts bytes = cast<Shorts>(levels(g, r));
                const Shorts even = bytes & splat<Shorts>(int16_t(127)), odd = bytes >> 8;
                sums[r] = Isa::add_products(Isa::add_products(sums[r], product(even), q_even), product(odd), q_odd);
                if (kLinear) linear[r] = Isa::add_products(Isa::add_products(linear[r], even, l_even), odd, l_odd);
                if (kWide) high[r] = Isa::add_products(Isa::add_products(high[r], even, h_even), odd, h_odd);
            }
        }
        for (int r = 0; r < kRegisters; ++r) {
            if (kWide) linear[r] = linear[r] + (high[r] << 8);
            sums[r] = (linear[r] << 1) - (sums[r] << 2);
        }
    }

    TOPSIGN_INLINE void add_equal_squares(const NormSums& norm, Ints (&sums)[kRegisters]) const {
        const V middle = splat<V>(uint8_t(kMiddle));
        for (int64_t g = 0; g < n_groups(); ++g)
            for (int r = 0; r < kRegisters; ++r) {
                const V bytes = levels(g, r);
                sums[r] = Isa::add_products(sums[r], bytes, cast<Ints>(bytes ^ middle));
            }
        for (int r = 0; r < kRegisters; ++r) sums[r] = sums[r] * splat<Ints>(-4 * norm.norm.quadratic[0]);
    }

    // Reads the rings of eight entries starting at `first`, word by word.
    void read(const uint8_t* const (&codes)[8], int64_t first) {
        const ts_trellis& trellis = plan_->trellis;
        const int64_t n_words = plan_->n_words, n_read = plan_->n_read;
        uint16_t* const to = words_.data() + first;
        if (n_read == 0) {
            for (int e = 0; e < 8; ++e) {
                unroll(trellis, codes[e], ring_.data());
                for (int64_t j = 0; j < n_words; ++j) to[j * kEntries + e] = read_word(ring_.data(), 16 * j);
            }
            return;
        }
        for (int64_t j = 0; j < n_read; j += 8) {
            const int64_t begin = std::min(j, n_read - 8);
            Isa::transpose(codes, 2 * begin, to + begin * kEntries, kEntries);
        }
        if (n_read < std::min(n_words, ceil_div(trellis.n_bits, 16)))  // a last byte
            for (int e = 0; e < 8; ++e) to[n_read * kEntries + e] = uint16_t(codes[e][2 * n_read] << 8);
    }

    // Appends the beginning of the rings after their last bits.
    void wrap_around() {
        const int64_t n_words = plan_->n_words, whole = plan_->trellis.n_bits / 16;
        const int part = int(plan_->trellis.n_bits % 16);
        for (int64_t j = whole; j < n_words; ++j)
            for (int64_t e = 0; e < kEntries; e += kEntries / 2) {
                uint16_t* const at = words_.data() + j * kEntries + e;
                const uint16_t* const again = at - whole * kEntries;
                if (part == 0) {
                    store(at, load<Words>(again));
                    continue;
                }
                // Only the valid bits of the last word.
                const Words before = j == whole ? load<Words>(at) >> (16 - part) : load<Words>(again - kEntries);
                store(at, before << (16 - part) | load<Words>(again) >> part);
            }
    }

    // Extracts 16 bits starting at bit `shift`, for half of the entries.
    static TOPSIGN_INLINE Words window(const uint16_t* at, int shift) {
        if (shift == 0) return load<Words>(at);
        return load<Words>(at) << shift | load<Words>(at + kEntries) >> (16 - shift);
    }

    const TrellisPlan* plan_ = nullptr;
    std::vector<uint8_t> ring_;
    Lines<uint16_t> words_;  // (n_words, kEntries)
    Lines<uint8_t> levels_;
    int entry_[kEntries];
};

}  // namespace
}  // namespace topsign
