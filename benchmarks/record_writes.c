/* Preloaded into a process, it records what the process does to files below a folder, in order:
 * TOPHIT_RECORD_FOLDER is the folder, TOPHIT_RECORD_TO the file of records. benchmarks/power_loss.py reads it.
 *
 * A record is: kind (1 byte), descriptor (int32), offset (int64), two lengths (uint32), and two texts of these lengths.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define MOST 4096
static char watched[MOST];
static int record_to = -2;
static const char *folder;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...)                                     \
    static type (*real)(__VA_ARGS__);                             \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int ready(void) {
    if (record_to == -2) {
        int (*plain_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
        const char *path = getenv("TOPHIT_RECORD_TO");
        folder = getenv("TOPHIT_RECORD_FOLDER");
        record_to = path && folder ? plain_open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    }
    return record_to >= 0;
}

static int below(const char *path) { return ready() && path && !strncmp(path, folder, strlen(folder)); }
static int is_watched(int fd) { return ready() && fd >= 0 && fd < MOST && watched[fd]; }

static void put(const void *data, size_t size) {
    static ssize_t (*plain_write)(int, const void *, size_t);
    if (!plain_write) plain_write = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *rest = data;
    while (size) {
        ssize_t done = plain_write(record_to, rest, size);
        if (done <= 0) abort();
        rest += done;
        size -= (size_t)done;
    }
}

static void record(char kind, int fd, int64_t offset, const void *one, size_t n1, const void *two, size_t n2) {
    int32_t number = fd;
    uint32_t lengths[2] = {(uint32_t)n1, (uint32_t)n2};
    pthread_mutex_lock(&turn);
    put(&kind, 1);
    put(&number, 4);
    put(&offset, 8);
    put(lengths, 8);
    put(one, n1);
    put(two, n2);
    pthread_mutex_unlock(&turn);
}

static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < MOST) {
        watched[fd] = (char)below(path);
        if (watched[fd]) record('o', fd, flags, path, strlen(path), "", 0);
    }
    return fd;
}

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        REAL(int, name, const char *, int, ...);                                \
        va_list more;                                                           \
        va_start(more, flags);                                                  \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0;     \
        va_end(more);                                                           \
        return opened(real(path, flags, mode), path, flags);                    \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    REAL(int, close, int);
    if (is_watched(fd)) {
        watched[fd] = 0;
        record('c', fd, 0, "", 0, "", 0);
    }
    return real(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    ssize_t done = real(fd, data, size);
    if (done > 0 && is_watched(fd)) record('w', fd, lseek(fd, 0, SEEK_CUR) - done, data, (size_t)done, "", 0);
    return done;
}

#define PWRITE(name, offset_type)                                                     \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) {         \
        REAL(ssize_t, name, int, const void *, size_t, offset_type);                  \
        ssize_t done = real(fd, data, size, offset);                                  \
        if (done > 0 && is_watched(fd)) record('w', fd, offset, data, (size_t)done, "", 0); \
        return done;                                                                  \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define SYNC(name)                                                     \
    int name(int fd) {                                                 \
        REAL(int, name, int);                                          \
        int done = real(fd);                                           \
        if (!done && is_watched(fd)) record('s', fd, 0, "", 0, "", 0); \
        return done;                                                   \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, offset_type)                                          \
    int name(int fd, offset_type size) {                                     \
        REAL(int, name, int, offset_type);                                   \
        int done = real(fd, size);                                           \
        if (!done && is_watched(fd)) record('t', fd, size, "", 0, "", 0);    \
        return done;                                                         \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    int done = real(from, to);
    if (!done && below(to)) record('r', -1, 0, from, strlen(from), to, strlen(to));
    return done;
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    int done = real(path);
    if (!done && below(path)) record('u', -1, 0, path, strlen(path), "", 0);
    return done;
}
