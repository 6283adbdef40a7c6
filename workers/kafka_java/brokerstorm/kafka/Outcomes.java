package brokerstorm.kafka;

import brokerstorm.kit.Death;
import brokerstorm.kit.Layout;
import java.util.Set;

/**
 * Outcome of a send by the exception of its delivery: fail (certainly not stored) or info (unknown).
 *
 * <p>What came out of the call of {@code send} itself, thrown or by its callback, never reached the accumulator: fail.
 * This table is for the rest, in doubt info. Sources: Sender.java (completeBatch, canRetry: what is retried),
 * RetriableException and its subclasses, org.apache.kafka.common.protocol.Errors. By the class's name, since older
 * clients lack some.
 */
final class Outcomes {
    private static final String HELD_BACK = "please seek past the record";
    /** The broker checks these before it appends, and the client does not retry them. */
    private static final Set<String> REJECTED = Set.of(
            "RecordTooLargeException", "RecordBatchTooLargeException", "InvalidTopicException",
            "InvalidRequiredAcksException", "TopicAuthorizationException", "ClusterAuthorizationException",
            "InvalidTimestampException", "UnsupportedForMessageFormatException",
            "UnsupportedCompressionTypeException", "PolicyViolationException", "InvalidRecordException");

    /**
     * Refused before the append but retried: an earlier attempt that was cut off may have been stored, so final only
     * for a send that is never retried.
     */
    private static final Set<String> REJECTED_THIS_ATTEMPT = Set.of(
            "NotLeaderOrFollowerException", "NotLeaderForPartitionException", "LeaderNotAvailableException",
            "UnknownTopicOrPartitionException", "NotEnoughReplicasException", "CorruptRecordException",
            "FencedLeaderEpochException", "UnknownLeaderEpochException");

    private static final Set<String> FENCED = Set.of("ProducerFencedException", "FencedInstanceIdException");

    /**
     * What the client says when it takes nothing any more: TransactionManager.maybeFailWithError (of 2.x, of 3.x and
     * newer), KafkaProducer.throwIfProducerClosed, and the end of its sender.
     */
    private static final Set<String> DEAD = Set.of(
            "Cannot perform send because at least one previous transactional or idempotent request has failed",
            "Cannot execute transactional method because we are in an error state",
            "Cannot perform operation after producer has been closed",
            "The producer closed forcefully");

    private final boolean isRetrying;

    Outcomes(boolean isRetrying) {
        this.isRetrying = isRetrying;
    }

    /** Why the client is of no further use, if this error says so; else null. */
    static Death death(Throwable error) {
        if (FENCED.contains(error.getClass().getSimpleName())) {
            return Death.FENCED;
        }
        String text = String.valueOf(error.getMessage());
        return DEAD.stream().anyMatch(text::startsWith) ? Death.ERROR : null;
    }

    /** Whether a consumer keeps a batch that it cannot read, and throws until its application goes past it or away. */
    static boolean isHeldBack(Throwable error) {
        return String.valueOf(error.getMessage()).contains(HELD_BACK);
    }

    int of(Throwable error) {
        String name = error.getClass().getSimpleName();
        boolean refused = REJECTED.contains(name) || (!isRetrying && REJECTED_THIS_ATTEMPT.contains(name));
        return refused ? Layout.FAIL : Layout.INFO;
    }
}
