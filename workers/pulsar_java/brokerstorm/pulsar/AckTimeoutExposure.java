package brokerstorm.pulsar;

import java.util.HashMap;
import java.util.Map;

/**
 * Counts messages that must have waited inside the client for longer than the ack timeout before the application got
 * them: the chance that a client which counts from its own receipt redelivers too early.
 *
 * <p>A bound from below, stream by stream. While there is a backlog, the client asks for more when half of its queue
 * was handed over: message n lay in its queue at the latest when message n - size/2 was handed over, if it was
 * published by then.
 */
final class AckTimeoutExposure {
    private final long ackTimeoutMs;
    private final int half;
    private final Map<Integer, Ring> byStream = new HashMap<>();
    private long waited;

    /** When the last messages of a stream were handed over. */
    private static final class Ring {
        final long[] ms;
        int count;

        Ring(int size) {
            ms = new long[size];
        }
    }

    /** @param ackTimeoutMs 0 = none, then nothing is counted */
    AckTimeoutExposure(long ackTimeoutMs, int queueSize) {
        this.ackTimeoutMs = ackTimeoutMs;
        this.half = Math.max(1, queueSize / 2);
    }

    /**
     * A message is handed over now; returns how many have waited too long so far.
     *
     * @param publishedMs Unix time of its publishing
     */
    synchronized long handedOver(int stream, long publishedMs) {
        if (ackTimeoutMs > 0) {
            Ring ring = byStream.computeIfAbsent(stream, id -> new Ring(half));
            int slot = ring.count % half;
            long now = System.currentTimeMillis();
            if (ring.count >= half && now - Math.max(ring.ms[slot], publishedMs) > ackTimeoutMs) {
                waited++;
            }
            ring.ms[slot] = now;
            ring.count++;
        }
        return waited;
    }
}
