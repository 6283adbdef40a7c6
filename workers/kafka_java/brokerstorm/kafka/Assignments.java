package brokerstorm.kafka;

import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.StreamIds;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** The partitions that a member of a group has, and what the journal says of them. */
final class Assignments {
    static final Duration COMMITTED = Duration.ofSeconds(2);

    final Set<TopicPartition> now = new HashSet<>();
    private final Session session;
    private final Journal journal;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final StreamIds streams;

    Assignments(Session session, Journal journal, KafkaConsumer<byte[], byte[]> consumer) {
        this.session = session;
        this.journal = journal;
        this.consumer = consumer;
        this.streams = new StreamIds(session);
    }

    MessagePosition place(TopicPartition partition, long position) {
        return new MessagePosition(streams.id(partition.topic(), partition.partition()), position);
    }

    void given(Collection<TopicPartition> partitions) {
        journal.nextEpoch();
        Map<TopicPartition, OffsetAndMetadata> committed = committed(partitions);
        for (TopicPartition partition : partitions) {
            OffsetAndMetadata at = committed.get(partition);
            journal.note(Layout.ASSIGN, place(partition, at == null ? -1 : at.offset()));
        }
        now.addAll(partitions);
        session.report.event("assign", partitions.size() + " partitions", Map.of("epoch", journal.epoch()));
    }

    /** @param next position of a partition that would be read next, -1 unknown */
    void taken(Collection<TopicPartition> partitions, Function<TopicPartition, Long> next) {
        for (TopicPartition partition : partitions) {
            journal.note(Layout.REVOKE, place(partition, next.apply(partition)));
            now.remove(partition);
        }
        session.report.event("revoke", partitions.size() + " partitions", Map.of("epoch", journal.epoch()));
    }

    /** Where reading starts: what the group has committed; unknown where it has not, or in trouble. */
    private Map<TopicPartition, OffsetAndMetadata> committed(Collection<TopicPartition> partitions) {
        try {
            return consumer.committed(new HashSet<>(partitions), COMMITTED);
        } catch (KafkaException error) {
            return Map.of();
        }
    }
}
