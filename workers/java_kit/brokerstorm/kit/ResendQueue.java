package brokerstorm.kit;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.LongAdder;

/**
 * {@code results: resent}: the application sends what failed again, after a pause, with the same lane and seq and
 * the next attempt. In the order of the failures; nothing else is reordered.
 */
final class ResendQueue {
    private static final int MOST_ATTEMPTS = 10;
    private static final long PAUSE_NS = 500_000_000;

    private final boolean isOn;
    private final Queue<PendingResend> owed = new ConcurrentLinkedQueue<>();
    private final LongAdder count = new LongAdder();

    private static final class PendingResend {
        final Send send;
        final long dueNs;

        PendingResend(Send send, long dueNs) {
            this.send = send;
            this.dueNs = dueNs;
        }
    }

    ResendQueue(boolean isOn) {
        this.isOn = isOn;
    }

    boolean isEmpty() {
        return owed.isEmpty();
    }

    /** Re-sends made so far. */
    long count() {
        return count.sum();
    }

    /** On any thread. */
    void failed(Send send) {
        if (isOn && send.attempt + 1 < MOST_ATTEMPTS) {
            Send again = new Send(send.sender, send.lane, send.seq, send.attempt + 1, send.kind, send.intendedNs);
            owed.add(new PendingResend(again, System.nanoTime() + PAUSE_NS));
        }
    }

    /** The next re-send whose pause is over, null when there is none. On the sending thread. */
    Send takeDue() {
        PendingResend first = owed.peek();
        if (first == null || first.dueNs > System.nanoTime()) {
            return null;
        }
        owed.poll();
        count.increment();
        return first.send;
    }
}
