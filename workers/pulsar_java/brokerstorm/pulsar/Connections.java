package brokerstorm.pulsar;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.impl.ConsumerBase;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;

/** Sees, topic by topic, when a consumer lost its connection and when it has another one. */
final class Connections {
    private final Streams streams;
    private final Epochs epochs;
    private final Map<String, Long> lossesMs = new HashMap<>();
    private long latestMs;
    private boolean isComplete = true;

    Connections(Streams streams, Epochs epochs) {
        this.streams = streams;
        this.epochs = epochs;
    }

    /** Whether one more connection was lost since the last look. */
    synchronized boolean look(Consumer<byte[]> consumer) {
        long latest = consumer.getLastDisconnectedTimestamp();
        if (latest == latestMs && isComplete) {
            return false;
        }
        latestMs = latest;
        isComplete = true;
        boolean isLost = false;
        for (Consumer<byte[]> each : each(consumer)) {
            int stream = streams.stream(each.getTopic(), -1);
            long lostMs = each.getLastDisconnectedTimestamp();
            if (lostMs != lossesMs.getOrDefault(each.getTopic(), 0L)) {
                lossesMs.put(each.getTopic(), lostMs);
                epochs.lost(stream); // at this very moment the client may still call itself connected
                isLost = true;
            } else if (epochs.awaits(stream) && each.isConnected()) {
                epochs.reconnected(stream, ((ConsumerBase<byte[]>) consumer).numMessagesInQueue());
            }
            isComplete &= !epochs.awaits(stream);
        }
        return isLost;
    }

    private static List<? extends Consumer<byte[]>> each(Consumer<byte[]> consumer) {
        if (consumer instanceof MultiTopicsConsumerImpl) {
            return ((MultiTopicsConsumerImpl<byte[]>) consumer).getConsumers();
        }
        return List.of(consumer);
    }
}
