/* The wall clock of one process, as a file says: preloaded into the nodes of a cluster (clocks.py beside it).
 *
 * CLOCK_REALTIME and CLOCK_REALTIME_COARSE of clock_gettime, gettimeofday and time are answered with an offset
 * that may grow; every other clock, the monotonic one above all, is the machine's. What waits in the kernel for
 * an absolute time, and the times of files, go by the machine's clock, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
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

static int64_t wall_ns(clockid_t which) {
    uint64_t turn;
    int64_t offset, drift, since, real = read_clock(which);
    do {
        turn = atomic_load_explicit(&file->turn, memory_order_acquire);
        const struct slot *slot = &file->slots[turn & 1];
        offset = atomic_load_explicit(&slot->offset_ns, memory_order_relaxed);
        drift = atomic_load_explicit(&slot->drift_ppb, memory_order_relaxed);
        since = atomic_load_explicit(&slot->since_ns, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
    } while (turn != atomic_load_explicit(&file->turn, memory_order_relaxed));
    if (drift) offset += (int64_t)((__int128)(read_clock(CLOCK_MONOTONIC) - since) * drift / SECOND);
    int64_t told = real + offset, empty = 0;
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
