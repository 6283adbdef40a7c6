package brokerstorm.kafka;

import brokerstorm.kit.Control;
import brokerstorm.kit.Death;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumer role: a member of a share group (KIP-932), which is given messages and settles them one by one.
 *
 * <p>Compiled only against clients that have it. The answers to acknowledgements come out of {@code poll}, so one
 * thread writes the journal.
 */
final class ShareRole implements Runnable {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration CLOSE = Duration.ofSeconds(3);
    private static final long CONFIG_S = 20;
    /** Settings of the group, which brokers keep: no option of the client. Where reading starts is one of them. */
    private static final Set<String> OF_GROUP = Set.of(
            "share.auto.offset.reset", "share.isolation.level", "share.record.lock.duration.ms",
            "share.heartbeat.interval.ms", "share.session.timeout.ms", "share.delivery.count.limit",
            "share.partition.max.record.locks");

    private final Session session;
    private final Control control;
    private final Journal journal;
    private final StreamIds streams;
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final boolean isExplicit;
    private final long releaseEvery;
    private final long rejectEvery;
    private final long workNs;
    /** Handed over, to be acknowledged by the next poll: of a client that acknowledges by itself. */
    private final List<MessagePosition> implicit = new ArrayList<>();
    private final Set<String> released = new HashSet<>();

    ShareRole(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.control = session.control;
        this.journal = new Journal(session);
        this.streams = new StreamIds(session);
        this.isExplicit = part.text("settle", "auto").equals("ack");
        this.releaseEvery = part.number("nack_every", 0);
        this.workNs = (long) (part.decimal("work_s", 0) * 1e9);
        Set<String> own = new HashSet<>(OF_GROUP);
        own.add(Options.REJECT_EVERY);
        Properties options = Options.ofConsumer(session, own);
        // Of members that are assigned partitions; this client refuses them.
        options.remove(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG);
        options.remove(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG);
        this.rejectEvery = count(options.remove(Options.REJECT_EVERY));
        Properties ofGroup = new Properties();
        ofGroup.put("share.auto.offset.reset", "earliest");
        for (String name : OF_GROUP) {
            Object value = options.remove(name);
            if (value != null) {
                ofGroup.put(name, value);
            }
        }
        options.put(ConsumerConfig.GROUP_ID_CONFIG, journal.group);
        options.put(ConsumerConfig.SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, isExplicit ? "explicit" : "implicit");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        this.consumer = Options.make(() -> new KafkaShareConsumer<>(options, bytes, bytes));
        session.optionsTaken();
        configure(options, ofGroup);
    }

    private static long count(Object given) {
        String text = given == null ? "0" : given.toString();
        if (!text.matches("\\d{1,9}")) {
            throw new WorkerFailure(Options.REJECT_EVERY + " '" + text + "': must be a whole number, 0 = none");
        }
        return Long.parseLong(text);
    }

    /** As an operator would, before the group has members; every member asks for the same. */
    private void configure(Properties options, Properties ofGroup) {
        Properties own = new Properties();
        for (String name : AdminClientConfig.configNames()) {
            if (options.containsKey(name)) {
                own.put(name, options.get(name));
            }
        }
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, journal.group);
        Collection<AlterConfigOp> wanted = ofGroup.entrySet().stream()
                .map(one -> new ConfigEntry(one.getKey().toString(), one.getValue().toString()))
                .map(entry -> new AlterConfigOp(entry, AlterConfigOp.OpType.SET))
                .collect(Collectors.toList());
        try (Admin admin = Admin.create(own)) {
            admin.incrementalAlterConfigs(Map.of(group, wanted)).all().get(CONFIG_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            throw new WorkerFailure(
                    "settings of share group " + journal.group + ": " + ErrorTexts.text(ErrorTexts.cause(error)),
                    "share groups need brokers of 4.2 or newer");
        } catch (InterruptedException error) {
            throw new WorkerFailure("interrupted");
        }
    }

    @Override
    public void run() {
        session.report.counts(journal::counts);
        consumer.setAcknowledgementCommitCallback(this::answered);
        consumer.subscribe(session.spec.part.texts("topics").stream()
                .map(topic -> session.spec.topic(topic).address)
                .collect(Collectors.toList()));
        assigned();
        take(); // it joins
        session.ready();
        while (!control.isOver()) {
            if (session.report.hasClientDied()) {
                LockSupport.parkNanos(POLL.toNanos());
                continue;
            }
            take();
        }
        close();
    }

    /** The client does not say which partitions it is given messages of. */
    private void assigned() {
        MessagePosition place = new MessagePosition(0, -1);
        place.ledger = -1;
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, place);
    }

    private void take() {
        noteImplicit();
        try {
            boolean any = false;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                taken(record);
                any = true;
            }
            if (any && isExplicit) {
                consumer.commitAsync();
            }
        } catch (KafkaException error) {
            failed("poll", error);
        }
    }

    private void taken(ConsumerRecord<byte[], byte[]> record) {
        MessagePosition place = place(record.topic(), record.partition(), record.offset());
        byte[] value = Records.payload(record);
        int redelivery = record.deliveryCount().map(count -> count - 1).orElse(-1);
        long number = journal.deliver(place, value, redelivery);
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
        if (!isExplicit) {
            implicit.add(place);
        } else if (releaseEvery > 0 && number % releaseEvery == 0) {
            journal.note(Layout.NACK, place);
            released.add(key(place));
            consumer.acknowledge(record, AcknowledgeType.RELEASE);
        } else {
            boolean isRejected = rejectEvery > 0 && number % rejectEvery == 0;
            journal.note(Layout.ACK_CALLED, place); // a rejected message is settled for good, too
            consumer.acknowledge(record, isRejected ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
        }
    }

    /** The poll that follows acknowledges what the one before handed over. */
    private void noteImplicit() {
        implicit.forEach(place -> journal.note(Layout.ACK_CALLED, place));
        implicit.clear();
    }

    /** What the brokers said to acknowledgements of a partition; those of messages that were released are none. */
    private void answered(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        if (error != null) {
            failed("acknowledgement", error);
        }
        offsets.forEach((partition, settled) -> settled.forEach(offset -> {
            MessagePosition place = place(partition.topic(), partition.partition(), offset);
            if (!released.remove(key(place)) && error == null) {
                journal.note(Layout.ACK_CONFIRMED, place);
            }
        }));
    }

    private void close() {
        noteImplicit();
        try {
            consumer.commitSync(CLOSE); // the answers come through the callback
            consumer.close(CLOSE);
        } catch (KafkaException error) {
            failed("close", error);
        }
    }

    private void failed(String what, Exception error) {
        session.report.error(error.getClass().getSimpleName(), what + ": " + ErrorTexts.text(error));
        Death death = Outcomes.death(error);
        if (death != null) {
            session.report.clientDied(error, death);
        }
    }

    private static String key(MessagePosition place) {
        return place.stream + "/" + place.position;
    }

    private MessagePosition place(String topic, int partition, long position) {
        return new MessagePosition(streams.id(topic, partition), position);
    }
}
