package brokerstorm.kit;

import java.nio.ByteBuffer;
import java.util.Map;

/** One call of the client, and the row of it. The client's answer ends it: {@link #ok} or {@link #failed}. */
public final class Send {
    public final Lane lane;
    public final long seq;
    public final int attempt;
    final int kind;
    final long intendedNs;
    final Sender sender;
    /** The sending thread while the call of the client runs; else null. */
    Thread caller;
    /** null without capture. */
    ByteBuffer rows;
    int at;
    /** Number of its transaction; 0 = none. */
    int transaction;
    /** Of an output of a pipeline: partition and offset of its input. */
    int sourcePartition;
    long sourceOffset;

    Send(Sender sender, Lane lane, long seq, int attempt, int kind, long intendedNs) {
        this.sender = sender;
        this.lane = lane;
        this.seq = seq;
        this.attempt = attempt;
        this.kind = kind;
        this.intendedNs = intendedNs;
    }

    /** Value of each of its headers that differs by message, by name; on the sending thread. */
    public Map<String, String> headers() {
        return sender.headersOf(this);
    }

    /** Whether this is asked from within the call of the client, on the sending thread. */
    public boolean isInCall() {
        return caller == Thread.currentThread();
    }

    /** The client of its thread, where each has one with a transactional id; else null. */
    public TransactionalClient client() {
        return sender.transactions == null ? null : sender.transactions.client;
    }

    /** The client reported success. On any thread. */
    public void ok(MessagePosition place) {
        sender.answered(this, Layout.OK, place, null);
    }

    /**
     * The client reported a failure. On any thread.
     *
     * @param outcome FAIL (certainly not stored) or INFO (unknown)
     */
    public void failed(int outcome, Throwable error) {
        failed(outcome, error, new MessagePosition());
    }

    /** The same with what is known of its place, such as the client's sequence id. */
    public void failed(int outcome, Throwable error, MessagePosition place) {
        sender.answered(this, outcome, place, error);
    }
}
