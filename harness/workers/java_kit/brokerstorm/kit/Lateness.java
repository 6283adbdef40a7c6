package brokerstorm.kit;

/**
 * Lateness of the generator itself, as if the client had never blocked and nothing been frozen.
 *
 * <p>A queue with one server (Lindley's recursion): own work adds to the lateness, every message sent is worth one
 * period of it. After the client blocked for seconds the backlog is sent much faster than it became due, so the
 * lateness of those messages is not charged to the generator; a generator that is too slow falls behind for ever.
 */
final class Lateness {
    private final double periodNs;
    private double lateNs;
    private double maxNs;

    Lateness(double periodNs) {
        this.periodNs = periodNs;
    }

    /** {@code ownNs}, without blocked and frozen time, went into sending this many messages. */
    synchronized void worked(long ownNs, long messages) {
        maxNs = Math.max(maxNs, lateNs);
        lateNs = Math.max(0, lateNs + ownNs - messages * periodNs);
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
