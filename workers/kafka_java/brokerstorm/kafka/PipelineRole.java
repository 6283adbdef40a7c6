package brokerstorm.kafka;

import brokerstorm.kit.Control;
import brokerstorm.kit.Death;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.Payload;
import brokerstorm.kit.Session;
import brokerstorm.kit.TransactionalClient;
import brokerstorm.kit.WorkerFailure;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Pipeline role: a consumer and a producer of one application. Of each message read one is made, and what could not
 * be settled is read again from the positions that the group has committed, as Kafka's documentation has it.
 *
 * <p>Compiled only against clients that know the group's metadata (KIP-447). One thread does everything.
 */
final class PipelineRole implements ConsumerRebalanceListener, Runnable {
    private static final long ASSIGN_NS = 25_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration CLOSE = Duration.ofSeconds(3);
    /** What a header has room for. */
    private static final long MOST_OFFSET = (1L << 32) - 1;

    private final Session session;
    private final Control control;
    private final Journal journal;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Writer writer;
    private final List<String> topics;
    private final int lanes;
    private final boolean isTransactional;
    private final long commitNs;
    /** Next sequence of each lane. */
    private final long[] seqs;
    /** Next positions of what was handed over since the last settlement. */
    private final Map<TopicPartition, OffsetAndMetadata> unsettled = new HashMap<>();
    private final Map<String, Long> settled = new ConcurrentHashMap<>();
    private final Assignments assigned;
    /** Reading goes back: nothing is made of what is handed over until then. */
    private boolean readsAgain;
    private long nextCommitNs;
    private long failures;

    PipelineRole(Session session) {
        Session reading = session.half("consumer");
        Session writing = session.half("producer");
        this.session = session;
        this.control = session.control;
        this.journal = new Journal(reading);
        this.topics = reading.spec.part.texts("topics").stream()
                .map(topic -> session.spec.topic(topic).address)
                .collect(Collectors.toList());
        this.commitNs = (long) (reading.spec.part.decimal("commit_every_s") * 1e9);
        this.isTransactional = writing.spec.part.has("transactions");
        this.lanes = writing.spec.lanes().size();
        this.seqs = new long[lanes];
        Properties options = Options.ofConsumer(reading, List.of());
        options.put(ConsumerConfig.GROUP_ID_CONFIG, journal.group);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        this.consumer = Options.make(() -> new KafkaConsumer<>(options, bytes, bytes));
        this.assigned = new Assignments(session, journal, consumer);
        this.writer = new Writer(writing);
    }

    /** The half that sends; in a transaction it has the positions before the commit. */
    private final class Writer extends ProducerRole {
        Writer(Session session) {
            super(session);
        }

        @Override
        protected TransactionalClient transactional(String id) {
            return new TransactionalProducer(() -> construct(id)) {
                @Override
                public void beforeCommit() {
                    producer().sendOffsetsToTransaction(unsettled, consumer.groupMetadata());
                }
            };
        }
    }

    @Override
    public void run() {
        try {
            play();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private void play() throws Exception {
        session.report.counts(this::counts);
        writer.openPipeline();
        consumer.subscribe(topics, this);
        awaitAssignment();
        session.ready();
        nextCommitNs = System.nanoTime() + commitNs;
        while (!control.isOver() && !session.report.hasClientDied()) {
            step();
        }
        if (!session.report.hasClientDied()) {
            settle();
        }
        try {
            consumer.close(CLOSE); // others go on with what it had, if its client died, too
        } catch (KafkaException error) {
            session.report.error(error.getClass().getSimpleName(), "close: " + ErrorTexts.text(error));
        }
        while (!control.isOver()) {
            LockSupport.parkNanos(POLL.toNanos());
        }
        writer.closePipeline();
    }

    private void awaitAssignment() {
        long begun = System.nanoTime();
        while (assigned.now.isEmpty() && journal.epoch() == 0 && !control.isStopped()) {
            take(POLL);
            if (System.nanoTime() - begun > ASSIGN_NS) {
                throw new WorkerFailure(
                        "group " + journal.group + ": no assignment from " + session.spec.bootstrap + " within "
                                + ASSIGN_NS / 1_000_000_000 + " s");
            }
        }
    }

    private void step() {
        if (readsAgain) {
            readAgain();
            return;
        }
        long left = (isTransactional ? writer.transactionEndNs() : nextCommitNs) - System.nanoTime();
        take(Duration.ofNanos(Math.max(0, Math.min(POLL.toNanos(), left))));
        if (isTransactional ? writer.isTransactionDue() : System.nanoTime() >= nextCommitNs) {
            settle();
        }
    }

    private void take(Duration wait) {
        try {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(wait)) {
                handedOver(record);
            }
        } catch (KafkaException error) {
            failed("poll", error);
            if (Outcomes.isHeldBack(error)) { // fetched once more, from what was committed
                consumer.unsubscribe();
                consumer.subscribe(topics, this);
            }
        }
    }

    /** Of probes, and of what is damaged, nothing is made. */
    private void handedOver(ConsumerRecord<byte[], byte[]> record) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        byte[] value = record.value() == null ? new byte[0] : record.value();
        if (readsAgain) { // what lies before it was not settled
            journal.deliver(assigned.place(partition, record.offset()), value, -1);
            return;
        }
        writer.beginIfNone();
        journal.deliver(assigned.place(partition, record.offset()), value, -1);
        unsettled.put(partition, new OffsetAndMetadata(record.offset() + 1));
        int check = Payload.check(value, session.spec.runTag);
        if (check != Layout.CHECK_OK || Payload.isProbe(value, check)) {
            return;
        }
        if (record.offset() > MOST_OFFSET) {
            throw new WorkerFailure(
                    partition + " is at offset " + record.offset() + ": outputs name their input up to " + MOST_OFFSET,
                    "a shorter load, or more partitions");
        }
        int lane = record.partition() % lanes;
        writer.made(lane, seqs[lane]++, value[3], System.nanoTime(), record.partition(), record.offset());
        if (writer.isTransactionDue()) {
            settle();
        }
    }

    // -- both sides

    private void settle() {
        nextCommitNs = System.nanoTime() + commitNs;
        if (unsettled.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>(unsettled);
        positions.forEach(
                (partition, at) -> journal.note(Layout.COMMIT_CALLED, assigned.place(partition, at.offset())));
        if (isTransactional ? writer.endTransaction(true) : isCommitted(positions)) {
            positions.forEach((partition, at) -> {
                journal.note(Layout.COMMIT, assigned.place(partition, at.offset()));
                settled.put(partition.toString(), at.offset());
            });
            unsettled.clear();
        } else if (isTransactional) {
            unsettled.clear();
            readsAgain = true;
        }
    }

    /** Without transactions: what was made is acknowledged first. A refused commit is repeated with the next. */
    private boolean isCommitted(Map<TopicPartition, OffsetAndMetadata> positions) {
        long before = failures;
        failures = writer.awaitAnswers();
        if (failures != before) {
            unsettled.clear();
            readsAgain = true;
            return false;
        }
        try {
            consumer.commitSync(positions, CLOSE);
            return true;
        } catch (KafkaException error) {
            failed("commit", error);
            return false;
        }
    }

    /** From the positions that the group has committed; asked for until it tells them. */
    private void readAgain() {
        try {
            Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(assigned.now, Assignments.COMMITTED);
            for (TopicPartition partition : assigned.now) {
                OffsetAndMetadata at = found.get(partition);
                if (at == null) {
                    consumer.seekToBeginning(List.of(partition));
                } else {
                    consumer.seek(partition, at.offset());
                }
                journal.note(Layout.SEEK, assigned.place(partition, at == null ? 0 : at.offset()));
            }
            readsAgain = false;
        } catch (KafkaException error) {
            failed("committed positions", error);
            LockSupport.parkNanos(POLL.toNanos());
        }
    }

    private void failed(String what, Exception error) {
        session.report.error(error.getClass().getSimpleName(), what + ": " + ErrorTexts.text(error));
        Death death = Outcomes.death(error);
        if (death != null) {
            session.report.clientDied(error, death);
        }
    }

    // -- the group

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        assigned.given(given);
    }

    /** What is open is settled before partitions go. */
    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        if (!session.report.hasClientDied()) {
            settle();
        }
        gone(taken);
    }

    /** They are others' by now: what was made of their messages must not count. */
    @Override
    public void onPartitionsLost(Collection<TopicPartition> taken) {
        if (!session.report.hasClientDied() && isTransactional) {
            writer.endTransaction(false);
        }
        unsettled.clear();
        readsAgain = true;
        gone(taken);
    }

    private void gone(Collection<TopicPartition> taken) {
        assigned.taken(taken, partition -> -1L);
        unsettled.keySet().removeAll(taken);
    }

    /** Of both halves; positions are those that are settled. */
    private Map<String, Object> counts() {
        Map<String, Object> found = new LinkedHashMap<>(writer.counts());
        found.putAll(journal.counts());
        found.put("positions", settled);
        return found;
    }
}
