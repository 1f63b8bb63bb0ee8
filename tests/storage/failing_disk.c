/* A disk that fails on order: preloaded into a process, it counts every file operation of every thread below one
   directory and fails the n-th of them, once or from then on. What a library does below Python is counted too: the
   linker hands us its calls. Nothing is counted, and nothing costs time, until `disk_arm` is called. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LOOK = 1, OPEN = 2, READ = 4, CREATE = 8, WRITE = 16, SYNC = 32, NAME = 64, SIZE = 128, CLOSE = 256 };

#define MOST 8192
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static volatile int armed;
static char root[1024];
static char only[256];              /* part of the path that an operation must have to be counted */
static int kinds, error_number, from_then_on;
static long at, seen, fired;
static char list[MOST][320];        /* what was counted, for messages; the failed ones carry a `!` */

/* Begin to count; n = 0 counts only. */
void disk_arm(const char *below, const char *part, int which, long n, int error, int persistent) {
    pthread_mutex_lock(&guard);
    snprintf(root, sizeof root, "%s", below);
    snprintf(only, sizeof only, "%s", part);
    kinds = which; at = n; error_number = error; from_then_on = persistent;
    seen = fired = 0;
    armed = 1;
    pthread_mutex_unlock(&guard);
}

void disk_disarm(void) { armed = 0; }
long disk_seen(void) { return seen; }
long disk_fired(void) { return fired; }
const char *disk_operation(long i) { return 0 <= i && i < seen && i < MOST ? list[i] : ""; }

/* A process that cannot call us is told by its environment: below|part|kinds|n|errno|persistent. A forked one, whose
   environment has come later, calls this again. */
__attribute__((constructor)) void disk_from_environment(void) {
    char below[1024], part[256];
    int which, error, persistent;
    long n;
    const char *order = getenv("FAILING_DISK");
    if (order && sscanf(order, "%1023[^|]|%255[^|]|%d|%ld|%d|%d", below, part, &which, &n, &error, &persistent) == 6)
        disk_arm(below, part, which, n, error, persistent);
}

static int path_of(int fd, char *into, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, into, size - 1);
    into[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Count an operation; return 1 when it is to fail, and 2 when it is the first of a disk that runs full. */
static int fails(const char *what, int kind, int directory, const char *path) {
    char whole[1400], folder[1024];
    int verdict = 0;
    if (!armed || !(kinds & kind)) return 0;
    if (path == NULL) { if (!path_of(directory, whole, sizeof whole)) return 0; }
    else if (path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
    else {
        if (directory == AT_FDCWD) { if (syscall(SYS_getcwd, folder, sizeof folder) <= 0) return 0; }
        else if (!path_of(directory, folder, sizeof folder)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", folder, path);
    }
    size_t length = strlen(root);
    if (strncmp(whole, root, length) || (whole[length] && whole[length] != '/')) return 0;
    if (only[0] != '*' && !strstr(whole, only)) return 0;
    pthread_mutex_lock(&guard);
    if (armed) {
        seen++;
        if (at && (seen == at || (from_then_on && seen > at))) {
            verdict = seen == at && from_then_on && error_number == ENOSPC ? 2 : 1;
            fired++;
        }
        if (seen <= MOST)
            snprintf(list[seen - 1], sizeof list[0], "%s%.16s %.290s", verdict ? "!" : "", what, whole + length);
    }
    pthread_mutex_unlock(&guard);
    return verdict;
}

#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define FAIL(value) do { errno = error_number; return value; } while (0)

static int kind_of(int flags) { return flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR) ? CREATE : OPEN; }

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(#name, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (fails("open", kind_of(flags), AT_FDCWD, path)) FAIL(-1); \
        return real(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(#name, int, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (fails("open", kind_of(flags), directory, path)) FAIL(-1); \
        return real(directory, path, flags, mode); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

#define FOPENING(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(#name, FILE *, const char *, const char *); \
        if (fails("open", mode[0] == 'r' && !strchr(mode, '+') ? OPEN : CREATE, AT_FDCWD, path)) FAIL(NULL); \
        return real(path, mode); \
    }
FOPENING(fopen)
FOPENING(fopen64)

DIR *opendir(const char *path) {
    REAL("opendir", DIR *, const char *);
    if (fails("list", LOOK, AT_FDCWD, path)) FAIL(NULL);
    return real(path);
}
DIR *fdopendir(int fd) {
    REAL("fdopendir", DIR *, int);
    if (fails("list", LOOK, fd, NULL)) FAIL(NULL);
    return real(fd);
}

/* Looking at a file: the C library has no `stat64` of another shape where we run: 64 bits, glibc 2.33 or newer. */
#define LOOKING(name) \
    int name(const char *path, struct stat *s) { \
        REAL(#name, int, const char *, struct stat *); \
        if (fails("stat", LOOK, AT_FDCWD, path)) FAIL(-1); \
        return real(path, s); \
    }
LOOKING(stat)
LOOKING(lstat)
#define LOOKING_FD(name) \
    int name(int fd, struct stat *s) { \
        REAL(#name, int, int, struct stat *); \
        if (fails("stat", LOOK, fd, NULL)) FAIL(-1); \
        return real(fd, s); \
    }
LOOKING_FD(fstat)
#define LOOKING_AT(name) \
    int name(int directory, const char *path, struct stat *s, int flags) { \
        REAL(#name, int, int, const char *, struct stat *, int); \
        if (fails("stat", LOOK, directory, path[0] ? path : NULL)) FAIL(-1); \
        return real(directory, path, s, flags); \
    }
LOOKING_AT(fstatat)
int stat64(const char *path, struct stat64 *s) { return stat(path, (struct stat *)s); }
int lstat64(const char *path, struct stat64 *s) { return lstat(path, (struct stat *)s); }
int fstat64(int fd, struct stat64 *s) { return fstat(fd, (struct stat *)s); }
int fstatat64(int directory, const char *path, struct stat64 *s, int flags) {
    return fstatat(directory, path, (struct stat *)s, flags);
}

ssize_t read(int fd, void *data, size_t n) {
    REAL("read", ssize_t, int, void *, size_t);
    if (fails("read", READ, fd, NULL)) FAIL(-1);
    return real(fd, data, n);
}
#define PREADING(name) \
    ssize_t name(int fd, void *data, size_t n, off_t from) { \
        REAL(#name, ssize_t, int, void *, size_t, off_t); \
        if (fails("read", READ, fd, NULL)) FAIL(-1); \
        return real(fd, data, n, from); \
    }
PREADING(pread)
PREADING(pread64)
#define PREADING_V(name) \
    ssize_t name(int fd, const struct iovec *data, int n, off_t from) { \
        REAL(#name, ssize_t, int, const struct iovec *, int, off_t); \
        if (fails("read", READ, fd, NULL)) FAIL(-1); \
        return real(fd, data, n, from); \
    }
PREADING_V(preadv)
PREADING_V(preadv64)
#define PREADING_V2(name) \
    ssize_t name(int fd, const struct iovec *data, int n, off_t from, int flags) { \
        REAL(#name, ssize_t, int, const struct iovec *, int, off_t, int); \
        if (fails("read", READ, fd, NULL)) FAIL(-1); \
        return real(fd, data, n, from, flags); \
    }
PREADING_V2(preadv2)
PREADING_V2(preadv64v2)

/* A disk that runs full takes a part of the first write. */
ssize_t write(int fd, const void *data, size_t n) {
    REAL("write", ssize_t, int, const void *, size_t);
    int verdict = fails("write", WRITE, fd, NULL);
    if (verdict == 2 && n > 1) return real(fd, data, n / 2);
    if (verdict) FAIL(-1);
    return real(fd, data, n);
}
#define PWRITING(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t from) { \
        REAL(#name, ssize_t, int, const void *, size_t, off_t); \
        int verdict = fails("write", WRITE, fd, NULL); \
        if (verdict == 2 && n > 1) return real(fd, data, n / 2, from); \
        if (verdict) FAIL(-1); \
        return real(fd, data, n, from); \
    }
PWRITING(pwrite)
PWRITING(pwrite64)
ssize_t writev(int fd, const struct iovec *data, int n) {
    REAL("writev", ssize_t, int, const struct iovec *, int);
    int verdict = fails("write", WRITE, fd, NULL);
    if (verdict == 2 && n > 1) return real(fd, data, n / 2);
    if (verdict) FAIL(-1);
    return real(fd, data, n);
}
#define PWRITING_V(name) \
    ssize_t name(int fd, const struct iovec *data, int n, off_t from) { \
        REAL(#name, ssize_t, int, const struct iovec *, int, off_t); \
        if (fails("write", WRITE, fd, NULL)) FAIL(-1); \
        return real(fd, data, n, from); \
    }
PWRITING_V(pwritev)
PWRITING_V(pwritev64)

/* Copies that never come to the process's own memory. */
#define SENDING(name) \
    ssize_t name(int to, int from, off_t *start, size_t n) { \
        REAL(#name, ssize_t, int, int, off_t *, size_t); \
        if (fails("read", READ, from, NULL) || fails("write", WRITE, to, NULL)) FAIL(-1); \
        return real(to, from, start, n); \
    }
SENDING(sendfile)
SENDING(sendfile64)

#define ONE_FD(name, what, kind) \
    int name(int fd) { \
        REAL(#name, int, int); \
        if (fails(what, kind, fd, NULL)) FAIL(-1); \
        return real(fd); \
    }
ONE_FD(fsync, "fsync", SYNC)
ONE_FD(fdatasync, "fsync", SYNC)
ONE_FD(syncfs, "fsync", SYNC)

/* Closing what was written may report a late write error; as Linux does it, the handle is gone whatever it returns. */
int close(int fd) {
    REAL("close", int, int);
    int flags = armed ? fcntl(fd, F_GETFL) : -1;
    int written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
    if (written && fails("close", CLOSE, fd, NULL)) { real(fd); FAIL(-1); }
    return real(fd);
}

#define ONE_PATH(name, what) \
    int name(const char *path) { \
        REAL(#name, int, const char *); \
        if (fails(what, NAME, AT_FDCWD, path)) FAIL(-1); \
        return real(path); \
    }
ONE_PATH(unlink, "unlink")
ONE_PATH(rmdir, "rmdir")
ONE_PATH(remove, "unlink")
int unlinkat(int directory, const char *path, int flags) {
    REAL("unlinkat", int, int, const char *, int);
    if (fails(flags & AT_REMOVEDIR ? "rmdir" : "unlink", NAME, directory, path)) FAIL(-1);
    return real(directory, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL("mkdir", int, const char *, mode_t);
    if (fails("mkdir", NAME, AT_FDCWD, path)) FAIL(-1);
    return real(path, mode);
}
int mkdirat(int directory, const char *path, mode_t mode) {
    REAL("mkdirat", int, int, const char *, mode_t);
    if (fails("mkdir", NAME, directory, path)) FAIL(-1);
    return real(directory, path, mode);
}
int rename(const char *from, const char *to) {
    REAL("rename", int, const char *, const char *);
    if (fails("rename", NAME, AT_FDCWD, from)) FAIL(-1);
    return real(from, to);
}
int renameat(int d, const char *from, int e, const char *to) {
    REAL("renameat", int, int, const char *, int, const char *);
    if (fails("rename", NAME, d, from)) FAIL(-1);
    return real(d, from, e, to);
}
int renameat2(int d, const char *from, int e, const char *to, unsigned flags) {
    REAL("renameat2", int, int, const char *, int, const char *, unsigned);
    if (fails("rename", NAME, d, from)) FAIL(-1);
    return real(d, from, e, to, flags);
}
#define SIZING(name) \
    int name(int fd, off_t size) { \
        REAL(#name, int, int, off_t); \
        if (fails("truncate", SIZE, fd, NULL)) FAIL(-1); \
        return real(fd, size); \
    }
SIZING(ftruncate)
SIZING(ftruncate64)
#define SIZING_PATH(name) \
    int name(const char *path, off_t size) { \
        REAL(#name, int, const char *, off_t); \
        if (fails("truncate", SIZE, AT_FDCWD, path)) FAIL(-1); \
        return real(path, size); \
    }
SIZING_PATH(truncate)
SIZING_PATH(truncate64)
#define RESERVING(name) \
    int name(int fd, off_t from, off_t size) { \
        REAL(#name, int, int, off_t, off_t); \
        if (fails("truncate", SIZE, fd, NULL)) return error_number; \
        return real(fd, from, size); \
    }
RESERVING(posix_fallocate)
RESERVING(posix_fallocate64)
