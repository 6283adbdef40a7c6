package brokerstorm.kit;

/** Where the client says a message is, in its own coordinates. Fields a client does not show keep their start. */
public final class Place {
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

    public Place() {}

    public Place(int stream, long position) {
        this.stream = stream;
        this.position = position;
    }
}
