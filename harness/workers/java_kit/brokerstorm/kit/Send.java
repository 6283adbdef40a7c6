package brokerstorm.kit;

import java.nio.ByteBuffer;

/** One call of the client, and the row of it. The client's answer ends it: {@link #ok} or {@link #failed}. */
public final class Send {
    public final Lane lane;
    public final long seq;
    public final int attempt;
    final int kind;
    final long intendedNs;
    final Sender sender;
    /** null without capture. */
    ByteBuffer rows;
    int at;

    Send(Sender sender, Lane lane, long seq, int attempt, int kind, long intendedNs) {
        this.sender = sender;
        this.lane = lane;
        this.seq = seq;
        this.attempt = attempt;
        this.kind = kind;
        this.intendedNs = intendedNs;
    }

    /** The client reported success. On any thread. */
    public void ok(Place place) {
        sender.answered(this, Layout.OK, place, null);
    }

    /**
     * The client reported a failure. On any thread.
     *
     * @param outcome FAIL (certainly not stored) or INFO (unknown)
     */
    public void failed(int outcome, Throwable error) {
        failed(outcome, error, new Place());
    }

    /** The same with what is known of its place, such as the client's sequence id. */
    public void failed(int outcome, Throwable error, Place place) {
        sender.answered(this, outcome, place, error);
    }
}
