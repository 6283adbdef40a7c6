package brokerstorm.kafka;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Sees the commits that a client makes by itself: it calls interceptors when the brokers confirmed one, from any of its
 * threads. The client constructs it, so positions are kept for the process, which has one consumer.
 */
public final class AutoCommits implements ConsumerInterceptor<byte[], byte[]> {
    private static final Map<TopicPartition, OffsetAndMetadata> CONFIRMED = new HashMap<>();

    /** Adds this class to the interceptors of the scenario. */
    static void watchIn(Properties options) {
        Object others = options.get(ConsumerConfig.INTERCEPTOR_CLASSES_CONFIG);
        String own = AutoCommits.class.getName();
        options.put(ConsumerConfig.INTERCEPTOR_CLASSES_CONFIG, others == null ? own : others + "," + own);
    }

    /** The last confirmed position of each partition since the call before. */
    static Map<TopicPartition, OffsetAndMetadata> taken() {
        synchronized (CONFIRMED) {
            Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>(CONFIRMED);
            CONFIRMED.clear();
            return found;
        }
    }

    @Override
    public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
        return records;
    }

    @Override
    public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        synchronized (CONFIRMED) {
            CONFIRMED.putAll(offsets);
        }
    }

    @Override
    public void configure(Map<String, ?> settings) {}

    @Override
    public void close() {}
}
