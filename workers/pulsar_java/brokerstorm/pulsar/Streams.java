package brokerstorm.pulsar;

import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.Template;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.TopicMessageIdImpl;

/** Between Pulsar's topics and message ids, and our streams and places. Safe on any thread. */
final class Streams {
    private static final String PARTITION = "-partition-";

    private final StreamIds ids;
    private final Map<String, Spec.Topic> byAddress = new ConcurrentHashMap<>();
    /** Address, with or without a partition, to the topic's name in the plan. */
    private final Map<String, String> names = new ConcurrentHashMap<>();
    private final Map<String, Integer> partitions = new ConcurrentHashMap<>();

    Streams(Session session) {
        ids = new StreamIds(session);
        session.spec.topics.values().forEach(topic -> byAddress.put(topic.address, topic));
    }

    /** The topic that holds one partition: a topic of one partition is no partitioned topic. */
    static String address(Spec.Topic topic, int partition) {
        return topic.partitions > 1 && partition >= 0 ? topic.address + PARTITION + partition : topic.address;
    }

    /** The payload of a message as it was sent: its value, or a body with the identity of its property. */
    static byte[] payload(Message<byte[]> message) {
        byte[] value = message.getData();
        return Template.isWhole(value) ? value : Template.joined(value, message.getProperty(Template.HEADER));
    }

    /** Ledger, entry and batch index; the stream from the partition that the id carries. */
    MessagePosition place(String address, MessageId id) {
        MessageIdImpl found = inner(id);
        MessagePosition place = new MessagePosition(stream(address, found.getPartitionIndex()), found.getEntryId());
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
        int number = partition >= 0 ? partition : partitions.computeIfAbsent(address, Streams::partition);
        return ids.id(names.computeIfAbsent(address, this::name), number);
    }

    /** The partition at the end of an address; the ids of a producer on exactly that topic do not have it. */
    private static int partition(String address) {
        int cut = address.lastIndexOf(PARTITION);
        String number = cut < 0 ? "" : address.substring(cut + PARTITION.length());
        return number.matches("[0-9]{1,9}") ? Integer.parseInt(number) : 0;
    }

    private String name(String address) {
        int cut = address.lastIndexOf(PARTITION);
        String topic = cut < 0 ? address : address.substring(0, cut);
        Spec.Topic found = byAddress.get(topic);
        return found == null ? topic : found.name;
    }
}
