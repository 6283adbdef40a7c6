package brokerstorm.kit;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The journal of one consumer session: what the application saw and did, in that order. Safe on any thread; the
 * order of the calls is the order of the rows.
 */
public final class Journal {
    private static final byte[] NO_VALUE = {};

    public final String group;
    private final Session session;
    private final Segments segments;
    private final Map<String, Long> positions = new ConcurrentHashMap<>();
    private final Map<String, Object> exposure = new ConcurrentHashMap<>();
    private int epoch;
    private long handedOver;
    private long probes;

    public Journal(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.group = part.text("group");
        this.segments = new Segments(
                session.spec.folder, Layout.Table.DELIVERIES, (int) part.number("session"), session.spec.runTag,
                session.names.id("subscription", group));
    }

    /** The client handed a message over; returns its number in the session, from 1. */
    public long deliver(MessagePosition place, byte[] value, int redelivery) {
        return deliver(place, value, redelivery, 0);
    }

    /**
     * The client handed a message over; returns its number in the session, from 1.
     *
     * @param redelivery count or flag, -1 the client shows none
     * @param txn ordinal of the consumer's transaction from 1, 0 none
     * @throws WorkerFailure the next segment cannot be made
     */
    public synchronized long deliver(MessagePosition place, byte[] value, int redelivery, long txn) {
        int check = Payload.check(value, session.spec.runTag);
        write(Layout.DELIVER, place, txn, redelivery, value, check);
        if (Payload.isProbe(value, check)) {
            probes++;
        }
        return ++handedOver;
    }

    /** Something that happened to a message or stream; kinds are in {@link Layout}. */
    public void note(int kind, MessagePosition place) {
        note(kind, place, 0);
    }

    /** The same within a transaction. */
    public synchronized void note(int kind, MessagePosition place, long txn) {
        write(kind, place, txn, -1, NO_VALUE, 0);
    }

    private void write(int kind, MessagePosition place, long txn, int redelivery, byte[] value, int check) {
        segments.next();
        Rows.delivery(
                segments.rows(), segments.at(), kind, System.nanoTime(), place, epoch, txn, redelivery, value, check);
    }

    /** A new assignment or connection begins; rows from now on carry the next number. */
    public synchronized int nextEpoch() {
        return ++epoch;
    }

    public synchronized int epoch() {
        return epoch;
    }

    /** Messages that were handed over, without probes. */
    public synchronized long delivered() {
        return handedOver - probes;
    }

    /** The next position after what was handed over of a stream, for the stats line. */
    public void position(String stream, long next) {
        positions.put(stream, next);
    }

    /** A counter of the chances a bug had; docs/worker-protocol.md has the names. */
    public void expose(String counter, long value) {
        exposure.put(counter, value);
    }

    /** Numbers of the stats line. */
    public Map<String, Object> counts() {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("delivered", delivered());
        found.put("epoch", epoch());
        found.put("positions", positions);
        if (!exposure.isEmpty()) {
            found.put("exposure", exposure);
        }
        return found;
    }
}
