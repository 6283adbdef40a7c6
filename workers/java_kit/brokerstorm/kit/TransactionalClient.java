package brokerstorm.kit;

/** The calls that a transaction takes, of a client with a transactional id; one sending thread uses it. */
public interface TransactionalClient {
    /** What the application does about an error of {@link #begin}, {@link #commit} or {@link #abort}. */
    enum Reaction { ASK_AGAIN, ABORT, GIVE_UP }

    void init() throws Exception;

    void begin() throws Exception;

    /** What the transaction has to hold before its commit, beside messages. */
    default void beforeCommit() throws Exception {}

    void commit() throws Exception;

    void abort() throws Exception;

    /** Returns when every message was answered. */
    void flush() throws Exception;

    /** As the client's documentation has it. */
    Reaction reaction(Exception error);

    void close();
}
