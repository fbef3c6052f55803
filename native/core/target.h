// Macros that select the target features of functions.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TOPSIGN_GENERIC)
#define TOPSIGN_X86 1
#else
#define TOPSIGN_X86 0
#endif

#if defined(__aarch64__) && defined(__GNUC__) && !defined(TOPSIGN_GENERIC)
#define TOPSIGN_ARM 1
#else
#define TOPSIGN_ARM 0
#endif

// Functions between the two are compiled for the features named, whatever the build's target. They must lie in an
// unnamed namespace: the same templates are compiled again for other sets. Headers that are not ours come before.
#define TOPSIGN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TOPSIGN_TARGET_BEGIN(features) \
    TOPSIGN_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define TOPSIGN_TARGET_END TOPSIGN_PRAGMA(clang attribute pop)
#elif defined(__GNUC__)
#define TOPSIGN_TARGET_BEGIN(features) TOPSIGN_PRAGMA(GCC push_options) TOPSIGN_PRAGMA(GCC target(features))
#define TOPSIGN_TARGET_END TOPSIGN_PRAGMA(GCC pop_options)
#endif

#if defined(__GNUC__)
#define TOPSIGN_INLINE __attribute__((always_inline)) inline
#define TOPSIGN_OUTLINE __attribute__((noinline))
#else
#define TOPSIGN_INLINE inline
#define TOPSIGN_OUTLINE
#endif
