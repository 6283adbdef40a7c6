package brokerstorm.streams;

import brokerstorm.kit.Control;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.stream.ConsumerBuilder;
import com.rabbitmq.stream.EnvironmentBuilder;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.StreamException;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Consumer role: a consumer of the client for each stream, from an offset on.
 *
 * <p>The client hands messages over on a thread of its own. The application works there ({@code receive: listener}), or
 * puts them into a queue that its main thread empties ({@code receive: loop}). After a lost connection the client reads
 * on from where it was.
 */
final class ConsumerRole {
    private static final Set<String> OWN = Set.of("streamOffset", Streams.PORT);
    private static final int MOST_WAITING = 1000;
    private static final long LOOK_MS = 50;

    private final Session worker;
    private final Control control;
    private final Journal journal;
    private final StreamIds ids;
    private final boolean isListener;
    private final long workNs;
    private final OffsetSpecification from;
    private final Options options;
    private final BlockingQueue<Delivery> waiting = new LinkedBlockingQueue<>(MOST_WAITING);

    /** A message as the client hands it over. */
    private static final class Delivery {
        final MessagePosition position;
        final byte[] body;

        Delivery(int stream, long offset, byte[] body) {
            this.position = new MessagePosition(stream, offset);
            this.body = body;
        }
    }

    ConsumerRole(Session worker) {
        Spec.Section part = worker.spec.part;
        this.worker = worker;
        control = worker.control;
        journal = new Journal(worker);
        ids = new StreamIds(worker);
        isListener = part.text("receive", "loop").equals("listener");
        workNs = (long) (part.decimal("work_s", 0) * 1e9);
        options = new Options(worker.spec.options, OWN, EnvironmentBuilder.class, ConsumerBuilder.class);
        from = offset(options.text("streamOffset"));
    }

    private static OffsetSpecification offset(String name) {
        switch (name) {
            case "first":
                return OffsetSpecification.first();
            case "next":
                return OffsetSpecification.next();
            default:
                throw new WorkerFailure("streamOffset '" + name + "': this worker has first and next");
        }
    }

    void run() throws Exception {
        worker.report.counts(journal::counts);
        Streams streams = new Streams(worker, options);
        assigned(streams);
        try {
            for (String topic : worker.spec.part.texts("topics")) {
                consume(streams, topic);
            }
        } catch (StreamException error) {
            throw Streams.refused(error);
        }
        worker.ready();
        while (!control.isOver()) {
            if (isListener) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(LOOK_MS));
                continue;
            }
            Delivery next = waiting.poll(LOOK_MS, TimeUnit.MILLISECONDS);
            if (next != null) {
                taken(next);
            }
        }
        waiting.clear(); // lets a thread of the client go that waits for room
        streams.environment.close();
    }

    private void consume(Streams streams, String topic) {
        int stream = ids.id(topic, 0);
        options.applied(ConsumerBuilder.class, streams.environment.consumerBuilder())
                .stream(topic + "-0")
                .offset(from)
                .listeners(streams.watch(() -> assigned(streams)))
                .messageHandler((context, message) ->
                        handed(new Delivery(stream, context.offset(), message.getBodyAsBinary())))
                .build();
    }

    private void handed(Delivery delivery) {
        if (isListener) {
            taken(delivery);
            return;
        }
        try {
            while (!control.isOver() && !waiting.offer(delivery, LOOK_MS, TimeUnit.MILLISECONDS)) {
                Thread.onSpinWait();
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    private void assigned(Streams streams) {
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, new MessagePosition());
        journal.expose("reconnects", streams.reconnects());
    }

    /** The application's part: note the message and work. */
    private synchronized void taken(Delivery given) {
        if (control.isStopped()) {
            return;
        }
        journal.deliver(given.position, given.body, 0);
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
    }
}
