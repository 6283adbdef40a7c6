package brokerstorm.kit;

/**
 * Lateness of the generator itself, as if the client had never blocked and nothing been frozen.
 *
 * <p>A queue with one server (Lindley's recursion): own work adds to the lateness, messages sent are worth the time in
 * which they became due. After the client blocked for seconds the backlog is sent much faster than it became due, so
 * the lateness of those messages is not charged to the generator; a generator that is too slow falls behind for ever.
 */
final class Lateness {
    private double lateNs;
    private double maxNs;

    /** {@code ownNs}, without blocked and frozen time, went into messages that became due in {@code worthNs}. */
    synchronized void worked(long ownNs, long worthNs) {
        maxNs = Math.max(maxNs, lateNs);
        lateNs = Math.max(0, lateNs + ownNs - worthNs);
    }

    /** Nothing was due; the sleep until the next message ended this much too late. */
    synchronized void caughtUp(long oversleptNs) {
        lateNs = Math.max(0, oversleptNs);
    }

    /** The largest lateness since the last call. */
    synchronized long takeMaxNs() {
        double largest = Math.max(maxNs, lateNs);
        maxNs = 0;
        return (long) largest;
    }
}
