// Fixed-size vectors with the operators of C: GNU vector types if the compiler supports them, otherwise arrays with
// short loops that it may vectorise.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../core/target.h"

namespace topsign {
namespace {

template <int Bytes>
using IntOf =
    std::conditional_t<Bytes == 1, int8_t,
                       std::conditional_t<Bytes == 2, int16_t, std::conditional_t<Bytes == 4, int32_t, int64_t>>>;

#if defined(__GNUC__) && !defined(TOPSIGN_NO_VECTOR_TYPES)

template <class T, int N>
struct VecOf {
    typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T, int N>
using Vec = typename VecOf<T, N>::type;

template <class V>
using Lane = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<V&>()[0])>>;

template <class V>
constexpr int kLanes = int(sizeof(V) / sizeof(Lane<V>));

// Broadcasts a number to all lanes. Subtracting zero keeps the sign of zeros.
template <class V>
TOPSIGN_INLINE V splat(Lane<V> value) {
    return value - V{};
}

template <class To, class From>
TOPSIGN_INLINE To convert(From v) {
    return __builtin_convertvector(v, To);
}

// Permutes lanes.
template <int... I, class V>
TOPSIGN_INLINE V shuffled(V v, std::integer_sequence<int, I...>) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(v, v, I...);
#else
    return __builtin_shuffle(v, Vec<IntOf<sizeof(Lane<V>)>, kLanes<V>>{I...});
#endif
}

template <class V>
TOPSIGN_INLINE V max_of(V a, V b) {
    return a > b ? a : b;
}

#else

template <class T, int N>
struct Vec {
    T lane[N] = {};
    T& operator[](int i) { return lane[i]; }
    const T& operator[](int i) const { return lane[i]; }
};

template <class V>
struct VecTraits;
template <class T, int N>
struct VecTraits<Vec<T, N>> {
    using Lane = T;
    static constexpr int kLanes = N;
};
template <class V>
using Lane = typename VecTraits<V>::Lane;
template <class V>
constexpr int kLanes = VecTraits<V>::kLanes;

template <class V>
TOPSIGN_INLINE V splat(Lane<V> value) {
    V v;
    for (int i = 0; i < kLanes<V>; ++i) v[i] = value;
    return v;
}

#define TOPSIGN_OPERATOR(op)                                         \
    template <class T, int N>                                        \
    TOPSIGN_INLINE Vec<T, N> operator op(Vec<T, N> a, Vec<T, N> b) { \
        for (int i = 0; i < N; ++i) a[i] = T(a[i] op b[i]);          \
        return a;                                                    \
    }
#define TOPSIGN_SHIFT(op)                                      \
    template <class T, int N>                                  \
    TOPSIGN_INLINE Vec<T, N> operator op(Vec<T, N> a, int n) { \
        for (int i = 0; i < N; ++i) a[i] = T(a[i] op n);       \
        return a;                                              \
    }
#define TOPSIGN_COMPARISON(op)                                                      \
    template <class T, int N>                                                       \
    TOPSIGN_INLINE Vec<IntOf<sizeof(T)>, N> operator op(Vec<T, N> a, Vec<T, N> b) { \
        Vec<IntOf<sizeof(T)>, N> out;                                               \
        for (int i = 0; i < N; ++i) out[i] = a[i] op b[i] ? -1 : 0;                 \
        return out;                                                                 \
    }
TOPSIGN_OPERATOR(+)
TOPSIGN_OPERATOR(-)
TOPSIGN_OPERATOR(*)
TOPSIGN_OPERATOR(/)
TOPSIGN_OPERATOR(&)
TOPSIGN_OPERATOR(|)
TOPSIGN_OPERATOR(^)
TOPSIGN_SHIFT(<<)
TOPSIGN_SHIFT(>>)
TOPSIGN_COMPARISON(==)
TOPSIGN_COMPARISON(<)
TOPSIGN_COMPARISON(>)
TOPSIGN_COMPARISON(>=)
#undef TOPSIGN_OPERATOR
#undef TOPSIGN_SHIFT
#undef TOPSIGN_COMPARISON

template <class T, int N>
TOPSIGN_INLINE Vec<T, N> operator~(Vec<T, N> a) {
    for (int i = 0; i < N; ++i) a[i] = T(~a[i]);
    return a;
}

template <class V>
TOPSIGN_INLINE V max_of(V a, V b) {
    for (int i = 0; i < kLanes<V>; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

template <class To, class From>
TOPSIGN_INLINE To convert(From v) {
    To out;
    for (int i = 0; i < kLanes<To>; ++i) out[i] = Lane<To>(v[i]);
    return out;
}

template <int... I, class V>
TOPSIGN_INLINE V shuffled(V v, std::integer_sequence<int, I...>) {
    V out;
    int at = 0;
    ((out[at++] = v[I]), ...);
    return out;
}

#endif

template <class V>
TOPSIGN_INLINE V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
TOPSIGN_INLINE void store(void* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

// Reinterprets the bits as another type.
template <class To, class From>
TOPSIGN_INLINE To cast(From v) {
    static_assert(sizeof(To) == sizeof(From));
    return load<To>(&v);
}

// 1, 2, 4, ...
template <class V>
TOPSIGN_INLINE V powers_of_two() {
    V v{};
    for (int i = 0; i < kLanes<V>; ++i) v[i] = Lane<V>(Lane<V>(1) << i);
    return v;
}

template <int Stride, int... I>
constexpr auto swapped_order(std::integer_sequence<int, I...>) {
    return std::integer_sequence<int, (I ^ Stride)...>();
}

// Swaps lanes i and i ^ Stride.
template <int Stride, class V>
TOPSIGN_INLINE V swapped(V v) {
    return shuffled(v, swapped_order<Stride>(std::make_integer_sequence<int, kLanes<V>>()));
}

// Whether any bit is set.
template <class V>
TOPSIGN_INLINE bool any(V v) {
    const auto words = cast<Vec<uint64_t, sizeof(V) / 8>>(v);
    uint64_t all = 0;
    for (int i = 0; i < int(sizeof(V) / 8); ++i) all |= words[i];
    return all != 0;
}

}  // namespace
}  // namespace topsign
