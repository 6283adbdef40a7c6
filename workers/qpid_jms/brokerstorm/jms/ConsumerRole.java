package brokerstorm.jms;

import brokerstorm.kit.Control;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;

/**
 * Consumer role: one connection, one session, a consumer for each queue, by {@code receive} or a listener.
 *
 * <p>A transaction (or what a client-acknowledge session acknowledges at once) that does not fill up is settled when
 * nothing comes for a while.
 */
final class ConsumerRole {
    private static final int RECEIVE_MS = 50;
    private static final long IDLE_NS = 300_000_000;

    private final Session worker;
    private final Control control;
    private final Journal journal;
    private final StreamIds streams;
    private final List<String> topics;
    private final boolean isListener;
    private final long workNs;
    private final JmsConnection link;
    private final Settlement settling;
    private List<Source> sources = List.of();
    private volatile long lastNs = System.nanoTime();
    private volatile JMSException failure;

    /** A consumer of one queue. */
    private static final class Source {
        final int stream;
        final MessageConsumer consumer;

        Source(int stream, MessageConsumer consumer) {
            this.stream = stream;
            this.consumer = consumer;
        }
    }

    ConsumerRole(Session worker) {
        Spec.Section part = worker.spec.part;
        this.worker = worker;
        control = worker.control;
        journal = new Journal(worker);
        streams = new StreamIds(worker);
        topics = part.texts("topics");
        isListener = isListener(part.text("receive", "loop"));
        workNs = (long) (part.decimal("work_s", 0) * 1e9);
        settling = new Settlement(worker, journal);
        link = new JmsConnection(worker, settling.isTransacted(), settling.acknowledgeMode(), this::reconnected);
    }

    private static boolean isListener(String receive) {
        if (!receive.equals("loop") && !receive.equals("listener")) {
            throw new WorkerFailure("receive '" + receive + "': a JMS consumer has loop and listener");
        }
        return receive.equals("listener");
    }

    void run() throws Exception {
        worker.report.counts(journal::counts);
        open();
        worker.ready();
        while (!control.isOver()) {
            try {
                if (!link.isOpen()) {
                    open();
                } else if (isListener) {
                    listen();
                } else {
                    receive();
                }
            } catch (JMSException error) {
                broken(error);
            }
        }
        finish();
    }

    private void open() throws JMSException {
        javax.jms.Session session = link.session();
        boolean isAgain = journal.epoch() > 0;
        List<Source> made = new ArrayList<>();
        for (String topic : topics) {
            String queue = topic + "-0";
            MessageConsumer consumer = session.createConsumer(link.library().queue(session, queue));
            Source source = new Source(streams.id(topic, 0), consumer);
            made.add(source);
            if (isListener) {
                consumer.setMessageListener(message -> onMessage(source, message));
            }
        }
        sources = made;
        assigned();
        if (isAgain) {
            settling.startOver();
        }
    }

    private void assigned() {
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, new MessagePosition());
    }

    /** The client made the connection again by itself; what it had prefetched comes again. */
    private void reconnected() {
        if (journal.epoch() > 0) {
            assigned();
            journal.expose("reconnects", link.reconnects());
        }
    }

    private void receive() throws JMSException {
        boolean isIdle = true;
        for (Source source : sources) {
            Message message = source.consumer.receive(sources.size() == 1 ? RECEIVE_MS : 1);
            if (message != null) {
                taken(source, message);
                isIdle = false;
            }
        }
        if (isIdle && System.nanoTime() - lastNs > IDLE_NS) {
            settling.settleRest(link.current());
        }
    }

    /** The main thread beside a listener: a session belongs to the listener while the connection is started. */
    private void listen() throws JMSException {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(RECEIVE_MS));
        JMSException error = failure;
        if (error != null) {
            failure = null;
            throw error;
        }
        if (settling.isOpen() && System.nanoTime() - lastNs > IDLE_NS) {
            link.connection().stop();
            settling.settleRest(link.current());
            link.connection().start();
        }
    }

    private void onMessage(Source source, Message message) {
        try {
            taken(source, message);
        } catch (JMSException error) {
            failure = error;
        }
    }

    /** The application's part: note it, work, settle. */
    private void taken(Source source, Message message) throws JMSException {
        if (control.isStopped()) {
            return; // goes back with the session
        }
        lastNs = System.nanoTime();
        int redelivery = message.getJMSRedelivered() ? 1 : 0;
        long number = journal.deliver(
                new MessagePosition(source.stream, -1), Bytes.of(message), redelivery, settling.transaction());
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
        settling.settle(link.current(), message, number);
    }

    private void broken(JMSException error) {
        if (link.isOpen()) {
            link.broken(error);
        }
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(RECEIVE_MS));
    }

    private void finish() throws JMSException {
        try {
            if (link.isOpen()) {
                link.connection().stop();
                settling.settleRest(link.current());
            }
        } catch (JMSException error) {
            worker.report.error(error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
        }
        link.close();
    }
}
