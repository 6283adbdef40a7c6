package brokerstorm.kit;

import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;

/**
 * Writes rows of the tables; the field that makes a row valid is written last.
 *
 * <p>There is no release store of a byte into a buffer; the fence before a plain one does the same.
 */
final class Rows {
    private static final int STATE = 32;
    private static final int TRANSACTION = 36;
    private static final int DONE = 40;
    private static final int ERROR = 84;
    private static final int OUTCOME = 88;
    private static final int LATE_OUTCOME = 89;

    private Rows() {}

    /** The open part of a send, before the client is called. */
    static void openSend(
            ByteBuffer rows, int at, int lane, int attempt, int kind, long seq, long intendedNs, long startNs) {
        rows.putInt(at, lane);
        rows.putShort(at + 4, (short) attempt);
        rows.put(at + 6, (byte) kind);
        rows.putLong(at + 8, seq);
        rows.putLong(at + 16, intendedNs);
        rows.putLong(at + 24, startNs);
        finish(rows, at + STATE, 1);
    }

    /** The same of a send in a transaction. */
    static void inTransaction(ByteBuffer rows, int at, int number) {
        rows.putInt(at + TRANSACTION, number);
    }

    /** The completion of a send, but for the outcome. */
    static void closeSend(ByteBuffer rows, int at, long doneNs, MessagePosition place, int error) {
        int done = at + DONE;
        rows.putLong(done, doneNs);
        rows.putLong(done + 8, place.position);
        rows.putLong(done + 16, place.ledger);
        rows.putLong(done + 24, place.clientSeq);
        rows.putInt(done + 32, place.stream);
        rows.putInt(done + 36, place.batch);
        rows.putInt(done + 40, place.clientName);
        rows.putInt(done + 44, error);
    }

    static void outcome(ByteBuffer rows, int at, int outcome) {
        finish(rows, at + OUTCOME, outcome);
    }

    static boolean isOutcomeKnown(ByteBuffer rows, int at) {
        return rows.get(at + OUTCOME) != Layout.NONE;
    }

    static void lateOutcome(ByteBuffer rows, int at, int outcome) {
        rows.put(at + LATE_OUTCOME, (byte) outcome);
    }

    static boolean isDone(ByteBuffer rows, int at) {
        return rows.getLong(at + DONE) != 0;
    }

    static void error(ByteBuffer rows, int at, int error) {
        rows.putInt(at + ERROR, error);
    }

    static void begun(ByteBuffer rows, int at, int number, int id, long beginNs) {
        rows.putInt(at, number);
        rows.putInt(at + 4, id);
        rows.putLong(at + 8, beginNs);
        finish(rows, at + 16, 1);
    }

    static void askedAt(ByteBuffer rows, int at, long askedNs) {
        rows.putLong(at + 24, askedNs);
    }

    static void asked(ByteBuffer rows, int at, int asked) {
        finish(rows, at + 32, asked);
    }

    static void transactionDone(ByteBuffer rows, int at, long doneNs, int error, int outcome) {
        rows.putLong(at + 40, doneNs);
        rows.putInt(at + 48, error);
        finish(rows, at + 52, outcome);
    }

    static void log(ByteBuffer rows, int at, MessagePosition place, long brokerTimeMs, byte[] value, int check) {
        rows.putLong(at, place.position);
        rows.putLong(at + 8, place.ledger);
        rows.putLong(at + 16, place.clientSeq);
        rows.putLong(at + 24, brokerTimeMs);
        rows.putInt(at + 32, place.stream);
        rows.putInt(at + 36, place.batch);
        rows.putInt(at + 40, place.clientName);
        rows.put(at + 44, (byte) place.txn);
        rows.put(at + 45, (byte) check);
        header(rows, at + 48, value);
        finish(rows, at + 96, 1);
    }

    static void delivery(
            ByteBuffer rows, int at, int kind, long ns, MessagePosition place, int epoch, long txn, int redelivery,
            byte[] value, int check) {
        rows.putLong(at, ns);
        rows.putLong(at + 8, place.position);
        rows.putLong(at + 16, place.ledger);
        rows.putLong(at + 24, txn);
        rows.putInt(at + 32, place.stream);
        rows.putInt(at + 36, place.batch);
        rows.putInt(at + 40, epoch);
        rows.putInt(at + 44, redelivery);
        header(rows, at + 48, value);
        rows.put(at + 96, (byte) check);
        finish(rows, at + 97, kind);
    }

    private static void header(ByteBuffer rows, int at, byte[] value) {
        int i = 0;
        for (; i + 8 <= Math.min(value.length, Layout.HEADER_BYTES); i += 8) {
            rows.putLong(at + i, (long) Payload.LONGS.get(value, i));
        }
        for (; i < Math.min(value.length, Layout.HEADER_BYTES); i++) {
            rows.put(at + i, value[i]);
        }
    }

    private static void finish(ByteBuffer rows, int at, int value) {
        VarHandle.releaseFence();
        rows.put(at, (byte) value);
    }
}
