package brokerstorm.pulsar;

import brokerstorm.kit.Layout;
import brokerstorm.kit.LogCapture;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.client.impl.ReaderImpl;

/**
 * Audit role: reads whole topics, several at a time, each from its first message to the one that was the last when
 * its turn came (no producer lives any more). With {@code follow} it reads what comes until then, all at once.
 *
 * <p>Bounds are counts of messages: Pulsar's positions are not dense. {@code end} of a topic that could not be read
 * to its last message is one more than what was read.
 */
final class AuditRole {
    /** Topics read at the same time: more do not read faster. */
    private static final int READERS = 8;
    private static final int TICK_MS = 200;
    private static final long LAST_ID_S = 10;
    private static final long RETRY_MS = 1000;

    private final Session session;
    private final Streams streams;
    private final LogCapture capture;
    private final long stallNs;
    private final boolean readsCommitted;
    private final boolean follows;
    private volatile RuntimeException failure;
    private final List<Task> tasks = new ArrayList<>();
    private final Map<String, Integer> producerNames = new ConcurrentHashMap<>();

    /** One stream to read. */
    private static final class Task {
        final String address;
        final LogCapture.Bounds bounds;
        MessageId from = MessageId.earliest;
        /** Under its lock: a listener may go on while its reader is closed. */
        boolean isFollowed;
        volatile boolean isLastChance;

        Task(String address, LogCapture.Bounds bounds, boolean isFollowed) {
            this.address = address;
            this.bounds = bounds;
            this.isFollowed = isFollowed;
        }
    }

    AuditRole(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.streams = new Streams(session);
        this.capture = new LogCapture(session);
        this.stallNs = (long) (part.decimal("stall_s") * 1e9);
        this.follows = part.flag("follow", false);
        this.readsCommitted = part.text("isolation").equals("read_committed");
        for (String stream : part.texts("streams")) {
            int dash = stream.lastIndexOf('-');
            Spec.Topic topic = session.spec.topic(stream.substring(0, dash));
            String address = Streams.address(topic, Integer.parseInt(stream.substring(dash + 1)));
            tasks.add(new Task(address, new LogCapture.Bounds(session, stream), follows));
        }
    }

    void run() throws Exception {
        session.report.counts(this::counts);
        Options options = new Options(session.spec.options);
        PulsarClient client = Clients.make(session, options);
        Clients.refuseOthers(options);
        session.ready();
        if (follows) {
            follow(client);
        }
        session.control.awaitStart();
        if (follows && session.control.isStopped()) {
            Clients.close(client); // somebody else reads the topics whole
            return;
        }
        try {
            readAll(client);
            // A second chance, without the others: one topic's broker may only have been slow.
            tasks.forEach(task -> task.isLastChance = true);
            readAll(client);
        } finally {
            List<LogCapture.Bounds> bounds = new ArrayList<>();
            tasks.forEach(task -> bounds.add(task.bounds));
            bounds.stream().filter(one -> one.why.isEmpty()).forEach(one -> one.why = "deadline");
            bounds.forEach(one -> one.end = one.readTo + (one.why.equals("end") ? 0 : 1));
            capture.write(bounds, session.spec.part.text("isolation"));
        }
        Clients.close(client);
    }

    /** Reads what comes until {@code start}. A reader that cannot be made is tried again. */
    private void follow(PulsarClient client) throws InterruptedException {
        Map<Task, CompletableFuture<Reader<byte[]>>> readers = new LinkedHashMap<>();
        do {
            for (Task task : tasks) {
                readers.compute(task, (key, reader) -> reader == null || reader.isCompletedExceptionally()
                        ? client.newReader(Schema.BYTES).topic(task.address).startMessageId(MessageId.earliest)
                                .readerListener((from, message) -> took(task, message)).createAsync()
                        : reader);
            }
        } while (!session.control.awaitStart(RETRY_MS) && failure == null);
        for (Task task : tasks) {
            synchronized (task) {
                task.isFollowed = false;
            }
        }
        readers.values().forEach(reader -> reader.thenAccept(Reader::closeAsync));
        if (failure != null) {
            throw failure;
        }
    }

    private void took(Task task, Message<byte[]> message) {
        synchronized (task) {
            if (!task.isFollowed || failure != null) {
                return;
            }
            try {
                take(task, message);
                task.from = message.getMessageId();
            } catch (RuntimeException error) { // the client would only log it
                failure = error;
            }
        }
    }

    private void readAll(PulsarClient client) throws InterruptedException {
        ExecutorService readers = Executors.newFixedThreadPool(READERS);
        tasks.stream().filter(task -> task.bounds.why.isEmpty()).forEach(task -> readers.execute(() -> {
            if (!session.control.isOver()) {
                readGuarded(client, task);
            }
        }));
        readers.shutdown();
        while (!readers.awaitTermination(TICK_MS, TimeUnit.MILLISECONDS)) {
            if (session.control.isOver() && readers.awaitTermination(LAST_ID_S, TimeUnit.SECONDS)) {
                return;
            }
        }
    }

    private void readGuarded(PulsarClient client, Task task) {
        try (Reader<byte[]> reader = client.newReader(Schema.BYTES).topic(task.address).startMessageId(task.from)
                .create()) {
            read(reader, task);
        } catch (Exception error) { // the other topics go on
            session.report.error(error.getClass().getSimpleName(), task.bounds.stream + ": " + error.getMessage());
            task.bounds.why = task.isLastChance ? "error" : "";
        }
    }

    private void read(Reader<byte[]> reader, Task task) throws Exception {
        MessageIdImpl last = Streams.inner(((ReaderImpl<byte[]>) reader)
                .getConsumer().getLastMessageIdAsync().get(LAST_ID_S, TimeUnit.SECONDS));
        boolean isDone = last.getEntryId() < 0 || isReached(task.from, last);
        long movedNs = System.nanoTime();
        while (!isDone && !session.control.isOver()) {
            Message<byte[]> message = reader.readNext(TICK_MS, TimeUnit.MILLISECONDS);
            if (message != null) {
                take(task, message);
                task.from = message.getMessageId();
                isDone = isReached(task.from, last);
                movedNs = System.nanoTime();
            } else if (System.nanoTime() - movedNs > stallNs) {
                stalled(task, last);
                return;
            }
        }
        if (isDone) {
            task.bounds.why = "end";
        }
    }

    private void stalled(Task task, MessageIdImpl last) {
        if (task.isLastChance) {
            task.bounds.why = "stall";
            String text = task.bounds.stream + " stopped after " + task.bounds.readTo + " messages, the last one is "
                    + last;
            session.report.event("stall", text);
        }
    }

    private void take(Task task, Message<byte[]> message) {
        MessagePosition place = streams.place(task.address, message.getMessageId());
        place.stream = task.bounds.streamId;
        place.clientSeq = message.getSequenceId();
        place.txn = readsCommitted && isInTransaction(message) ? Layout.COMMITTED_TXN : Layout.NO_TXN;
        String producer = message.getProducerName();
        place.clientName = producer == null
                ? 0
                : producerNames.computeIfAbsent(producer, name -> session.names.id("client_name", name));
        capture.found(place, message.getPublishTime(), Streams.payload(message));
        task.bounds.readTo++; // by one thread at a time
    }

    /** Brokers give readers nothing else of transactions than what was committed. */
    private static boolean isInTransaction(Message<byte[]> message) {
        return message instanceof MessageImpl && ((MessageImpl<byte[]>) message).getMessageBuilder().hasTxnidMostBits();
    }

    private static boolean isReached(MessageId at, MessageIdImpl last) {
        if (!(at instanceof MessageIdImpl) || at == MessageId.earliest) {
            return false;
        }
        MessageIdImpl here = Streams.inner(at);
        int order = Long.compare(here.getLedgerId(), last.getLedgerId());
        order = order != 0 ? order : Long.compare(here.getEntryId(), last.getEntryId());
        return order > 0 || (order == 0 && batch(here) >= batch(last));
    }

    private static int batch(MessageIdImpl id) {
        return id instanceof BatchMessageIdImpl ? ((BatchMessageIdImpl) id).getBatchIndex() : -1;
    }

    private Map<String, Object> counts() {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("read", capture.read());
        found.put("streams_open", tasks.stream().filter(task -> task.bounds.why.isEmpty()).count());
        return found;
    }
}
