package brokerstorm.pulsar;

import brokerstorm.kit.Names;
import brokerstorm.kit.Place;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.TopicMessageIdImpl;

/** Between Pulsar's topics and message ids, and our streams and places. Safe on any thread. */
final class Streams {
    private static final String PARTITION = "-partition-";

    private final Names names;
    private final Map<String, Spec.Topic> byAddress = new ConcurrentHashMap<>();
    private final Map<String, int[]> ids = new ConcurrentHashMap<>();

    Streams(Session session) {
        names = session.names;
        session.spec.topics.values().forEach(topic -> byAddress.put(topic.address, topic));
    }

    /** The topic that holds one partition: a topic of one partition is no partitioned topic. */
    static String address(Spec.Topic topic, int partition) {
        return topic.partitions > 1 && partition >= 0 ? topic.address + PARTITION + partition : topic.address;
    }

    /** Ledger, entry and batch index; the stream from the partition that the id carries. */
    Place place(String address, MessageId id) {
        MessageIdImpl found = inner(id);
        Place place = new Place(stream(address, found.getPartitionIndex()), found.getEntryId());
        place.ledger = found.getLedgerId();
        place.batch = found instanceof BatchMessageIdImpl ? ((BatchMessageIdImpl) found).getBatchIndex() : -1;
        place.clientSeq = -1;
        return place;
    }

    static MessageIdImpl inner(MessageId id) {
        return (MessageIdImpl) (id instanceof TopicMessageIdImpl ? ((TopicMessageIdImpl) id).getInnerMessageId() : id);
    }

    /** Name id of the stream of a topic, given with or without its partition. */
    int stream(String address, int partition) {
        int number = Math.max(0, partition);
        int[] known = ids.get(address);
        if (known != null && number < known.length && known[number] != 0) {
            return known[number];
        }
        int id = names.stream(name(address) + "-" + number);
        ids.compute(address, (key, old) -> {
            int[] row = old == null ? new int[number + 1] : java.util.Arrays.copyOf(
                    old, Math.max(old.length, number + 1));
            row[number] = id;
            return row;
        });
        return id;
    }

    private String name(String address) {
        int cut = address.lastIndexOf(PARTITION);
        String topic = cut < 0 ? address : address.substring(0, cut);
        Spec.Topic found = byAddress.get(topic);
        return found == null ? topic : found.name;
    }
}
