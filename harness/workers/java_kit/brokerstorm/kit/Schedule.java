package brokerstorm.kit;

/**
 * Message i is due at {@code t0 + i / rate}; warm-up messages first, then load. Rate 0 means unlimited: everything
 * is due at once, until the time is over.
 */
final class Schedule {
    final double periodNs;
    /** Messages due before the load begins. */
    final long warmUpCount;
    /** Messages due before the load ends. */
    final long total;

    private final long warmUpNs;
    private final long loadNs;
    private long t0Ns;

    Schedule(double ratePerS, double warmUpS, double loadS) {
        periodNs = ratePerS > 0 ? 1e9 / ratePerS : 0;
        warmUpCount = (long) Math.ceil(warmUpS * ratePerS);
        total = (long) Math.ceil((warmUpS + loadS) * ratePerS);
        warmUpNs = (long) (warmUpS * 1e9);
        loadNs = (long) (loadS * 1e9);
    }

    void begin(long t0) {
        t0Ns = t0;
    }

    long beginNs() {
        return t0Ns;
    }

    boolean isUnlimited() {
        return periodNs == 0;
    }

    long loadBeginNs() {
        return t0Ns + warmUpNs;
    }

    long endNs() {
        return t0Ns + warmUpNs + loadNs;
    }

    /** When message i is due. */
    long dueNs(long i) {
        return t0Ns + (long) (i * periodNs);
    }

    /** How many messages are due by now: all i with {@code dueNs(i) <= nowNs}, at most {@link #total}. */
    long dueCount(long nowNs) {
        if (nowNs < t0Ns) {
            return 0;
        }
        long count = Math.min((long) ((nowNs - t0Ns) / periodNs) + 1, total);
        while (count < total && dueNs(count) <= nowNs) { // rounding at the edge
            count++;
        }
        while (count > 0 && dueNs(count - 1) > nowNs) {
            count--;
        }
        return count;
    }
}
