/* The wall clock of one process, as a file says: preloaded into nodes of a cluster and clients (clocks.py beside
 * it).
 *
 * CLOCK_REALTIME and CLOCK_REALTIME_COARSE of clock_gettime, gettimeofday and time are answered with an offset
 * that may grow; every other clock, the monotonic one above all, is the machine's. A condition is waited for until
 * the wall clock shows a time as it goes when the wait begins. What else waits in the kernel for an absolute time,
 * and the times of files, go by the machine's clock, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

/* The file, in the byte order of the machine. Its writer fills the slot that is not used, then turns to it: one
 * that dies in between has changed nothing. */
struct slot {
    _Atomic int64_t offset_ns; /* ahead of the machine's wall clock at since_ns */
    _Atomic int64_t drift_ppb; /* how much faster it goes from then on */
    _Atomic int64_t since_ns;  /* CLOCK_MONOTONIC */
};
struct clock_file {
    _Atomic uint64_t turn;
    struct slot slots[2];
    _Atomic int64_t told_ns;      /* 0 = the next time that is told is written here */
    _Atomic int64_t told_real_ns; /* what the machine's clock showed then */
};

static struct clock_file none;
static struct clock_file *file = &none;
static int (*machine_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    machine_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    atomic_store(&none.told_ns, 1);
    const char *path = getenv("BROKERSTORM_CLOCK");
    int handle = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (handle < 0) return;
    void *at = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (at != MAP_FAILED) file = at;
    close(handle);
}

static int64_t read_clock(clockid_t which) {
    struct timespec now;
    if (!machine_clock) begin(); /* somebody asks before our turn */
    machine_clock(which, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

/* How far the wall clock is ahead of the machine's. */
static int64_t ahead_ns(void) {
    uint64_t turn;
    int64_t offset, drift, since;
    do {
        turn = atomic_load_explicit(&file->turn, memory_order_acquire);
        const struct slot *slot = &file->slots[turn & 1];
        offset = atomic_load_explicit(&slot->offset_ns, memory_order_relaxed);
        drift = atomic_load_explicit(&slot->drift_ppb, memory_order_relaxed);
        since = atomic_load_explicit(&slot->since_ns, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
    } while (turn != atomic_load_explicit(&file->turn, memory_order_relaxed));
    if (drift) offset += (int64_t)((__int128)(read_clock(CLOCK_MONOTONIC) - since) * drift / SECOND);
    return offset;
}

static int64_t wall_ns(clockid_t which) {
    int64_t real = read_clock(which), told = real + ahead_ns(), empty = 0;
    if (atomic_load_explicit(&file->told_ns, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_strong(&file->told_ns, &empty, -1)) {
        atomic_store(&file->told_real_ns, real);
        atomic_store(&file->told_ns, told);
    }
    return told;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) {
        int64_t now = wall_ns(which);
        at->tv_sec = now / SECOND;
        at->tv_nsec = now % SECOND;
        return 0;
    }
    if (!machine_clock) begin();
    return machine_clock(which, at);
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    int64_t now = wall_ns(CLOCK_REALTIME);
    at->tv_sec = now / SECOND;
    at->tv_usec = now % SECOND / 1000;
    return 0;
}

time_t time(time_t *at) {
    time_t now = wall_ns(CLOCK_REALTIME_COARSE) / SECOND;
    if (at) *at = now;
    return now;
}

/* When the machine's clock shows what the wall clock does at a time, as it goes now. */
static struct timespec machine_time(const struct timespec *until) {
    int64_t ahead = ahead_ns();
    if (!ahead) return *until;
    /* A condition may go by the monotonic clock, whose times no wall clock shows: it began with the machine. */
    int64_t real = until->tv_sec * SECOND + until->tv_nsec - ahead;
    int64_t by_wall = real - read_clock(CLOCK_REALTIME), by_start = real + ahead - read_clock(CLOCK_MONOTONIC);
    if (llabs(by_start) < llabs(by_wall)) return *until;
    return (struct timespec){real / SECOND, real % SECOND};
}

static void *machines(const char *name, const char *version) {
#ifdef __GLIBC__ /* an older one of that name takes conditions of another form */
    void *found = dlvsym(RTLD_NEXT, name, version);
    if (found) return found;
#endif
    (void)version;
    return dlsym(RTLD_NEXT, name);
}

typedef int (*waits)(void *, void *, const struct timespec *);

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static _Atomic(waits) machine;
    if (!atomic_load(&machine)) atomic_store(&machine, (waits)machines("pthread_cond_timedwait", "GLIBC_2.3.2"));
    struct timespec then = machine_time(until);
    return atomic_load(&machine)(cond, mutex, &then);
}

int cnd_timedwait(void *cond, void *mutex, const struct timespec *until) {
    static _Atomic(waits) machine;
    if (!atomic_load(&machine)) atomic_store(&machine, (waits)machines("cnd_timedwait", "GLIBC_2.28"));
    struct timespec then = machine_time(until);
    return atomic_load(&machine)(cond, mutex, &then);
}
