package brokerstorm.kafka;

import brokerstorm.kit.Control;
import brokerstorm.kit.Death;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Interruptions;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.WorkerFailure;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumer role: a member of a group. Every callback comes out of {@code poll}, so one thread writes the journal. */
final class ConsumerRole implements ConsumerRebalanceListener, Runnable {
    private static final long ASSIGN_NS = 25_000_000_000L;
    private static final long EMPTY_ASSIGNMENT_NS = 5_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(50);
    /** The last commit, before the group is left, and the leaving. */
    private static final Duration CLOSE = Duration.ofSeconds(3);

    private final Session session;
    private final Control control;
    private final Journal journal;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final boolean commitsItself;
    private final long commitNs;
    private final long workNs;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private final Assignments assigned;
    private final Interruptions interruptions;
    private final boolean isReader;
    private boolean isPaused;
    /** Partitions that came during a pause are not paused yet. */
    private boolean hasNewPartitions;

    ConsumerRole(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.control = session.control;
        this.journal = new Journal(session);
        this.commitNs = (long) (part.decimal("commit_every_s") * 1e9);
        this.workNs = (long) (part.decimal("work_s", 0) * 1e9);
        Properties options = Options.ofConsumer(session, List.of());
        this.isReader = part.flag("reader", false);
        if (!isReader) {
            options.put(ConsumerConfig.GROUP_ID_CONFIG, journal.group);
        }
        this.commitsItself = "true".equals(options.getProperty(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG));
        if (commitsItself) {
            AutoCommits.watchIn(options);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        this.consumer = Options.make(() -> new KafkaConsumer<>(options, bytes, bytes));
        this.assigned = new Assignments(session, journal, consumer);
        this.interruptions = new Interruptions(part, control);
    }

    @Override
    public void run() {
        session.optionsTaken();
        session.report.counts(journal::counts);
        subscribe();
        awaitAssignment();
        session.ready();
        long nextCommit = System.nanoTime() + commitNs;
        while (!control.isOver()) {
            if (session.report.hasClientDied()) {
                LockSupport.parkNanos(POLL.toNanos());
                continue;
            }
            interrupt();
            take();
            if (System.nanoTime() >= nextCommit) {
                commitAsync();
                nextCommit = System.nanoTime() + commitNs;
            }
        }
        commitSync();
        try {
            consumer.close(CLOSE);
            noteAutoCommits();
        } catch (KafkaException error) { // of a client that gave itself up
            session.report.error(error.getClass().getSimpleName(), "close: " + ErrorTexts.text(error));
        }
    }

    private void subscribe() {
        if (isReader) {
            assignItself();
            return;
        }
        if (session.spec.part.has("pattern")) {
            consumer.subscribe(Pattern.compile(session.spec.part.text("pattern")), this);
            return;
        }
        List<String> topics = new ArrayList<>();
        session.spec.part.texts("topics").forEach(topic -> topics.add(session.spec.topic(topic).address));
        consumer.subscribe(topics, this);
    }

    /** Reads every partition of the topics without a group. */
    private void assignItself() {
        List<TopicPartition> own = new ArrayList<>();
        for (String name : session.spec.part.texts("topics")) {
            for (int partition = 0; partition < session.spec.topic(name).partitions; partition++) {
                own.add(new TopicPartition(session.spec.topic(name).address, partition));
            }
        }
        consumer.assign(own);
        assigned.given(own);
    }

    /** Returns with partitions; a member may also get none, but a first answer of none is often early. */
    private void awaitAssignment() {
        long begun = System.nanoTime();
        while (assigned.now.isEmpty() && !control.isStopped()) {
            take();
            long waited = System.nanoTime() - begun;
            if (journal.epoch() > 0 && waited > EMPTY_ASSIGNMENT_NS) {
                return;
            }
            if (waited > ASSIGN_NS) {
                throw new WorkerFailure(
                        "group " + journal.group + ": no assignment from " + session.spec.bootstrap + " within "
                                + ASSIGN_NS / 1_000_000_000 + " s");
            }
        }
    }

    private void take() {
        try {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                taken(record);
            }
            noteAutoCommits();
        } catch (KafkaException error) {
            session.report.error(error.getClass().getSimpleName(), ErrorTexts.text(error));
            noteDeath(error);
            if (Outcomes.isHeldBack(error)) {
                readAgain();
            }
        }
    }

    /** The bytes may have been damaged on their way only, so they are fetched once more, from what was committed. */
    private void readAgain() {
        if (isReader) {
            assigned.now.forEach(place -> positions.putIfAbsent(place, consumer.position(place)));
        }
        consumer.unsubscribe();
        subscribe();
        if (isReader) {
            positions.forEach(consumer::seek);
        }
    }

    private void noteDeath(Exception error) {
        Death death = Outcomes.death(error);
        if (death != null) {
            session.report.clientDied(error, death);
        }
    }

    private void taken(ConsumerRecord<byte[], byte[]> record) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        byte[] value = Records.payload(record);
        journal.deliver(assigned.place(partition, record.offset()), value, -1);
        long next = record.offset() + 1;
        positions.put(partition, next);
        uncommitted.put(partition, new OffsetAndMetadata(next));
        journal.position(record.topic() + "-" + record.partition(), next);
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
    }

    // -- pauses and seeks

    /** Pauses, resumes or seeks if it is time to. */
    private void interrupt() {
        boolean wanted = interruptions.isPaused();
        if (wanted != isPaused || (wanted && hasNewPartitions)) {
            isPaused = wanted;
            if (isPaused) {
                consumer.pause(assigned.now);
            } else {
                consumer.resume(assigned.now);
            }
            session.report.event(isPaused ? "pause" : "resume", assigned.now.size() + " partitions");
        }
        hasNewPartitions = false;
        long back = interruptions.messagesBack();
        if (back > 0) {
            seek(back);
        }
    }

    /** Goes back in each partition of which something was handed over. */
    private void seek(long back) {
        int sought = 0;
        for (TopicPartition partition : assigned.now) {
            Long position = positions.get(partition);
            if (position != null) {
                long target = Math.max(position - back, 0);
                consumer.seek(partition, target);
                journal.note(Layout.SEEK, assigned.place(partition, target));
                positions.put(partition, target);
                journal.position(partition.topic() + "-" + partition.partition(), target);
                sought++;
            }
        }
        session.report.event("seek", back + " messages back in " + sought + " partitions");
    }

    // -- the group

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        noteAutoCommits();
        assigned.given(given);
        hasNewPartitions = true;
    }

    /** What was not committed is for the next owner to read again. Also called for partitions that were lost. */
    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        noteAutoCommits();
        assigned.taken(taken, partition -> positions.getOrDefault(partition, -1L));
        uncommitted.keySet().removeAll(taken);
    }

    // -- commits

    /** What was handed over since the last commit, as an application would commit it. */
    private Map<TopicPartition, OffsetAndMetadata> takeUncommitted() {
        if (commitsItself || isReader) {
            return Map.of();
        }
        Map<TopicPartition, OffsetAndMetadata> taken = new HashMap<>(uncommitted);
        uncommitted.clear();
        taken.forEach((partition, at) -> journal.note(Layout.COMMIT_CALLED, assigned.place(partition, at.offset())));
        return taken;
    }

    /** Positions that the client committed by itself and that the brokers confirmed since the last call. */
    private void noteAutoCommits() {
        if (commitsItself) {
            AutoCommits.taken().forEach((place, at) -> committed(Map.of(place, at), null));
        }
    }

    private void commitAsync() {
        Map<TopicPartition, OffsetAndMetadata> taken = takeUncommitted();
        if (!taken.isEmpty()) {
            consumer.commitAsync(taken, this::committed);
        }
    }

    /**
     * Commit what is left when the member leaves. The call is made with nothing left, too: it gives the results of
     * earlier asynchronous commits to their callbacks. close() drops a result that has arrived if no commit is pending.
     */
    private void commitSync() {
        Map<TopicPartition, OffsetAndMetadata> taken = takeUncommitted();
        if (isReader || (taken.isEmpty() && session.report.hasClientDied())) {
            return;
        }
        try {
            consumer.commitSync(taken, CLOSE);
            committed(taken, null);
        } catch (KafkaException error) {
            committed(taken, error);
        }
    }

    /** The client confirms or refuses a commit; only confirmed ones become rows. */
    private void committed(Map<TopicPartition, OffsetAndMetadata> taken, Exception error) {
        if (error != null) {
            session.report.error(error.getClass().getSimpleName(), "commit: " + ErrorTexts.text(error));
            noteDeath(error);
            return;
        }
        taken.forEach((partition, at) -> journal.note(Layout.COMMIT, assigned.place(partition, at.offset())));
    }
}
