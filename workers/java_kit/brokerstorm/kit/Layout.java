package brokerstorm.kit;

/** Numbers of docs/capture-format.md. Made from harness/records.py by `make docs`; do not edit. */
public final class Layout {
    private Layout() {}

    public static final int HEADER_BYTES = 48;
    public static final int TRAILER_BYTES = 4;
    public static final int MIN_PAYLOAD_BYTES = 52;
    public static final int SEGMENT_HEADER_BYTES = 64;
    public static final int FORMAT_VERSION = 1;

    // Kinds of messages.
    public static final int PROBE = 0;
    public static final int WARM_UP = 1;
    public static final int LOAD = 2;

    // Outcomes of a send: exactly one each. 0: the client never answered.
    public static final int NONE = 0;
    public static final int OK = 1;
    public static final int FAIL = 2;
    public static final int INFO = 3;
    public static final int ABORTED = 4;

    // What a reader found a payload to be.
    public static final int CHECK_OK = 0;
    public static final int CORRUPT = 1;
    public static final int FOREIGN = 2;
    public static final int OTHER_RUN = 3;

    // Events of a consumer's journal.
    public static final int DELIVER = 1;
    public static final int ACK_CALLED = 2;
    public static final int ACK_CONFIRMED = 3;
    public static final int NACK = 4;
    public static final int COMMIT = 5;
    public static final int COMMIT_CALLED = 6;
    public static final int ROLLBACK_BEGIN = 7;
    public static final int ROLLBACK_END = 8;
    public static final int RECOVER = 9;
    public static final int ASSIGN = 10;
    public static final int REVOKE = 11;
    public static final int SEEK = 12;

    // Transactions of what lies in a log.
    public static final int NO_TXN = 0;
    public static final int COMMITTED_TXN = 1;

    // What was asked for to end a transaction.
    public static final int COMMIT_ASKED = 1;
    public static final int ABORT_ASKED = 2;

    /** The tables: number, name of the files, bytes a row. */
    public enum Table {
        SENDS(1, "sends", 96),
        LOG(2, "log", 104),
        DELIVERIES(3, "deliveries", 104),
        TRANSACTIONS(4, "transactions", 64);

        final int number;
        final String files;
        final int rowBytes;

        Table(int number, String files, int rowBytes) {
            this.number = number;
            this.files = files;
            this.rowBytes = rowBytes;
        }
    }
}
