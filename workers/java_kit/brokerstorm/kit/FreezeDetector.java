package brokerstorm.kit;

import java.lang.management.ManagementFactory;
import java.util.function.LongConsumer;

/** Detects that this process did not run for a while (SIGSTOP, a paused container, a starved machine). */
public final class FreezeDetector {
    static final long TICK_NS = 50_000_000;
    /**
     * A gap this long in which the process also used no CPU is a freeze: above what a busy machine's scheduler
     * does to a thread that sleeps a tick, far below the pauses that faults make.
     */
    private static final long FREEZE_NS = 250_000_000;

    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final LongConsumer onFreeze;
    private long seenNs = System.nanoTime();
    private long cpuNs = cpuNs();
    private volatile long frozenNs;

    /** @param onFreeze is told of each freeze, in nanoseconds */
    FreezeDetector(LongConsumer onFreeze) {
        this.onFreeze = onFreeze;
    }

    /** All of this process's freezes so far. */
    public long frozenNs() {
        return frozenNs;
    }

    /** CPU time of this process. */
    static long cpuNs() {
        return SYSTEM.getProcessCpuTime();
    }

    /** Adds a freeze that ended just now, if there was one, and tells of it. */
    public void check() {
        long frozen;
        synchronized (this) {
            long now = System.nanoTime();
            long cpu = cpuNs();
            long gap = now - seenNs;
            long worked = cpu - cpuNs;
            seenNs = now;
            cpuNs = cpu;
            if (gap < FREEZE_NS || worked > gap / 4) { // with CPU used it is a collection or a busy thread
                return;
            }
            frozen = gap - TICK_NS;
            frozenNs += frozen;
        }
        onFreeze.accept(frozen);
    }
}
