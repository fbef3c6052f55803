/* Preloaded before libc: logs every call that changes files below a folder, and kills the process at a given one.
 *
 * SHIM_ROOT   folder whose files are watched
 * SHIM_LOG    file that gets one record per call: "kind path [path] length\n", then the bytes of a write
 * SHIM_KILL   number of the call before which the process kills itself; 0 or unset: none
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long calls = 0;
static int log_descriptor = -1;
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int watched(const char *path) {
    const char *root = getenv("SHIM_ROOT");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static void full_path(int folder, const char *path, char *out) {
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        base[n < 0 ? 0 : n] = 0;
        snprintf(out, PATH_MAX, "%s/%s", base, path);
    }
}

static void descriptor_path(int descriptor, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
}

static void note(const char *kind, const char *path, const char *other, const void *bytes, size_t length) {
    const char *kill_at = getenv("SHIM_KILL"), *log = getenv("SHIM_LOG");
    calls++;
    if (kill_at && atol(kill_at) == calls) kill(getpid(), SIGKILL);
    if (!log) return;
    if (!real_openat) real_openat = REAL(openat);
    if (!real_write) real_write = REAL(write);
    if (log_descriptor < 0) log_descriptor = real_openat(AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    char line[2 * PATH_MAX + 64];
    int n = snprintf(line, sizeof line, "%s\t%s\t%s\t%zu\n", kind, path, other ? other : "", bytes ? length : 0);
    real_write(log_descriptor, line, (size_t)n);
    if (bytes) real_write(log_descriptor, bytes, length);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    char path[PATH_MAX];
    if (!real_write) real_write = REAL(write);
    if (descriptor > 2 && descriptor != log_descriptor) {
        descriptor_path(descriptor, path);
        if (watched(path)) note("write", path, NULL, bytes, length);
    }
    return real_write(descriptor, bytes, length);
}

int fsync(int descriptor) {
    char path[PATH_MAX];
    descriptor_path(descriptor, path);
    if (watched(path)) note("fsync", path, NULL, NULL, 0);
    return REAL(fsync)(descriptor);
}

static int created(int folder, const char *path, int flags) {
    char full[PATH_MAX];
    if (!(flags & O_CREAT)) return 0;
    full_path(folder, path, full);
    if (watched(full) && access(full, F_OK) != 0) note("create", full, NULL, NULL, 0);
    return 0;
}

#define OPEN(name, type)                                                    \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = (mode_t)va_arg(rest, int);                            \
        va_end(rest);                                                       \
        created(AT_FDCWD, path, flags);                                     \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open, int)
OPEN(open64, int)

#define OPENAT(name)                                                        \
    int name(int folder, const char *path, int flags, ...) {                \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = (mode_t)va_arg(rest, int);                            \
        va_end(rest);                                                       \
        created(folder, path, flags);                                       \
        return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define TWO(kind, call, folder, path, other_folder, other)                  \
    char full[PATH_MAX], second[PATH_MAX];                                  \
    full_path(folder, path, full);                                          \
    full_path(other_folder, other, second);                                 \
    if (watched(full)) note(kind, full, second, NULL, 0);                   \
    return call

int link(const char *path, const char *other) { TWO("link", REAL(link)(path, other), AT_FDCWD, path, AT_FDCWD, other); }
int linkat(int a, const char *path, int b, const char *other, int flags) {
    TWO("link", REAL(linkat)(a, path, b, other, flags), a, path, b, other);
}
int rename(const char *path, const char *other) {
    TWO("rename", REAL(rename)(path, other), AT_FDCWD, path, AT_FDCWD, other);
}
int renameat(int a, const char *path, int b, const char *other) {
    TWO("rename", REAL(renameat)(a, path, b, other), a, path, b, other);
}
int renameat2(int a, const char *path, int b, const char *other, unsigned flags) {
    TWO("rename", REAL(renameat2)(a, path, b, other, flags), a, path, b, other);
}

#define ONE(kind, call, folder, path)                                       \
    char full[PATH_MAX];                                                    \
    full_path(folder, path, full);                                          \
    if (watched(full)) note(kind, full, NULL, NULL, 0);                     \
    return call

int unlink(const char *path) { ONE("unlink", REAL(unlink)(path), AT_FDCWD, path); }
int unlinkat(int folder, const char *path, int flags) { ONE("unlink", REAL(unlinkat)(folder, path, flags), folder, path); }
int rmdir(const char *path) { ONE("unlink", REAL(rmdir)(path), AT_FDCWD, path); }
int mkdir(const char *path, mode_t mode) { ONE("mkdir", REAL(mkdir)(path, mode), AT_FDCWD, path); }
int mkdirat(int folder, const char *path, mode_t mode) { ONE("mkdir", REAL(mkdirat)(folder, path, mode), folder, path); }
