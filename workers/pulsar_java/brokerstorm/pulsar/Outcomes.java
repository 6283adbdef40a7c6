package brokerstorm.pulsar;

import brokerstorm.kit.Death;
import brokerstorm.kit.Layout;
import java.util.Set;

/**
 * Outcome of a send by the exception of the client: fail (certainly not stored) or info (unknown).
 *
 * <p>Sources: ProducerImpl.java (which checks come before a message is queued, what a timeout and a close do to the
 * pending ones), PulsarClientException.java. By the class's name, since older clients lack some.
 */
final class Outcomes {
    /** The client says so before it queues the message; nothing was sent. */
    private static final Set<String> REFUSED = Set.of(
            "InvalidTxnStatusException", // TransactionImpl.checkIfOpen: its transaction is over
            "MemoryBufferIsFullError", // canEnqueueRequest: over memoryLimitBytes (2.8 and newer)
            "ProducerQueueIsFullError"); // canEnqueueRequest: over maxPendingMessages

    /** Checked before queueing, but a chunked message may have lost earlier chunks to the broker. */
    private static final Set<String> REFUSED_WHOLE = Set.of("InvalidMessageException");

    // Unknown, on purpose: TimeoutException (all pending of the producer fail together, many are stored),
    // AlreadyClosedException, TopicTerminatedException, ProducerFencedException, NotConnectedException
    // (given to pending messages, too), ChecksumException, ProducerBlockedQuotaExceeded*, everything else.

    /** HandlerState of a producer or consumer that will not connect again. */
    private static final String CLOSED = "AlreadyClosedException";
    private static final String FENCED = "ProducerFencedException";

    private final boolean isChunking;

    Outcomes(boolean isChunking) {
        this.isChunking = isChunking;
    }

    /** Why the client is of no further use, if this error says so; else null. Nobody else closes it. */
    static Death death(Throwable error) {
        String name = error.getClass().getSimpleName();
        return name.equals(FENCED) ? Death.FENCED : name.equals(CLOSED) ? Death.ERROR : null;
    }

    /** Of a send that the client refused in the call itself: isValidProducerState, before anything is queued. */
    int ofCall(Throwable error) {
        return death(error) != null ? Layout.FAIL : of(error);
    }

    int of(Throwable error) {
        String name = error.getClass().getSimpleName();
        boolean refused = REFUSED.contains(name) || (!isChunking && REFUSED_WHOLE.contains(name));
        return refused ? Layout.FAIL : Layout.INFO;
    }
}
