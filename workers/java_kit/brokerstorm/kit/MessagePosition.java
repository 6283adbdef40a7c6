package brokerstorm.kit;

/** Position of a message as the client shows it. Fields that a client does not show keep their first value. */
public final class MessagePosition {
    /** Kafka offset, Pulsar entry id, ordinal in a queue; -1 unknown. */
    public long position = -1;
    /** Pulsar ledger id. */
    public long ledger;
    /** The client's own sequence id. */
    public long clientSeq;
    /** Name id of the stream; 0 unknown. */
    public int stream;
    /** Pulsar batch index; -1 unbatched. */
    public int batch;
    /** Name id of the client's own producer name; 0 none. */
    public int clientName;
    /** As an audit's reader sees it: {@link Layout#NO_TXN} or {@link Layout#COMMITTED_TXN}. */
    public int txn;

    public MessagePosition() {}

    public MessagePosition(int stream, long position) {
        this.stream = stream;
        this.position = position;
    }
}
