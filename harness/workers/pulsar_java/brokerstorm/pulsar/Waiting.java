package brokerstorm.pulsar;

/**
 * How many messages must have waited inside the client for longer than the ack timeout before the application got
 * them: the chance that a client which counts from its own receipt redelivers too early.
 *
 * <p>A bound from below. While there is a backlog, the client asks for more when half of its queue was handed over:
 * message n lay in its queue at the latest when message n - size/2 was handed over, if it was published by then.
 */
final class Waiting {
    private final long ackTimeoutMs;
    private final long[] handedOverMs;
    private long count;
    private long waited;

    /** @param ackTimeoutMs 0 = none, then nothing is counted */
    Waiting(long ackTimeoutMs, int queueSize) {
        this.ackTimeoutMs = ackTimeoutMs;
        this.handedOverMs = new long[Math.max(1, queueSize / 2)];
    }

    /**
     * A message is handed over now; returns how many have waited too long so far.
     *
     * @param publishedMs Unix time of its publishing
     */
    synchronized long handedOver(long publishedMs) {
        int slot = (int) (count % handedOverMs.length);
        long since = Math.max(handedOverMs[slot], publishedMs);
        long now = System.currentTimeMillis();
        if (ackTimeoutMs > 0 && count >= handedOverMs.length && now - since > ackTimeoutMs) {
            waited++;
        }
        handedOverMs[slot] = now;
        count++;
        return waited;
    }
}
