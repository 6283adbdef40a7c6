package brokerstorm.pulsar;

import brokerstorm.kit.Control;
import brokerstorm.kit.Death;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.ConsumerBuilderImpl;
import org.apache.pulsar.client.impl.conf.ConsumerConfigurationData;

/**
 * Consumer role: one subscription of all its topics, by a receive loop, a listener, or batches.
 *
 * <p>A message is journaled when the application gets it: receive returned, the listener was called.
 */
final class ConsumerRole {
    private static final int RECEIVE_MS = 50;
    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long LISTENER_NS = TimeUnit.SECONDS.toNanos(3);

    private final Session session;
    private final Control control;
    private final Journal journal;
    private final Streams streams;
    private final String receive;
    private final long workNs;
    /** Null without seeks. */
    private final Replay replay;
    private volatile Acknowledger settling;
    private volatile AckTimeoutExposure waiting;
    private volatile Consumer<byte[]> consumer;
    private final AtomicInteger listening = new AtomicInteger();
    private volatile boolean hasEnded;
    private volatile Epochs epochs;
    private volatile Connections connections;
    private long reconnects;
    private long lookedNs;

    ConsumerRole(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.control = session.control;
        this.journal = new Journal(session);
        this.streams = new Streams(session);
        this.receive = part.text("receive", "loop");
        this.workNs = (long) (part.decimal("work_s", 0) * 1e9);
        this.replay = part.has("seeks") ? new Replay(session, journal) : null;
    }

    void run() throws Exception {
        session.report.counts(journal::counts);
        Options options = new Options(session.spec.options);
        PulsarClient client = Clients.make(session, options);
        consumer = subscribe(client, options);
        session.report.everyTick(this::tick);
        session.ready();
        switch (receive) {
            case "loop":
                while (!control.isOver()) {
                    if (replay != null && replay.seekIfDue(consumer)) {
                        settling.forget();
                    }
                    receive(() -> taken(consumer, consumer.receive(RECEIVE_MS, TimeUnit.MILLISECONDS)));
                }
                break;
            case "batch":
                while (!control.isOver()) {
                    receive(() -> consumer.batchReceive().forEach(message -> taken(consumer, message)));
                }
                break;
            default:
                while (!control.isOver()) {
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(RECEIVE_MS));
                }
                consumer.pause();
                awaitListener();
        }
        settling.finish();
        Clients.close(client);
    }

    /** On the ticking thread. */
    private void tick() {
        lookForReconnect();
        settling.acknowledgeWhenDue();
    }

    private interface Receiving {
        void run() throws PulsarClientException;
    }

    /** One call of the client, which may say that it is of no further use. */
    private void receive(Receiving call) throws PulsarClientException {
        if (session.report.hasClientDied()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(RECEIVE_MS));
            return;
        }
        try {
            call.run();
        } catch (PulsarClientException error) {
            Death death = Outcomes.death(error);
            if (death == null) {
                throw error;
            }
            session.report.clientDied(error, death);
        }
    }

    private Consumer<byte[]> subscribe(PulsarClient client, Options options) throws Exception {
        ConsumerBuilderImpl<byte[]> builder = (ConsumerBuilderImpl<byte[]>) client.newConsumer(Schema.BYTES);
        ConsumerConfigurationData<byte[]> conf = builder.getConf();
        if (replay != null) {
            // Without, the client drops the message that it seeks and never acknowledges it: it stays in the backlog.
            conf.setResetIncludeHead(true);
        }
        options.apply(conf, "topicNames", "topicsPattern", "subscriptionName", "messageListener",
                "consumerEventListener");
        Clients.refuseOthers(options);
        session.optionsTaken();
        settling = new Acknowledger(session, journal);
        waiting = new AckTimeoutExposure(conf.getAckTimeoutMillis(), conf.getReceiverQueueSize());
        if (session.spec.part.has("pattern")) {
            builder.topicsPattern(session.spec.part.text("pattern"));
        } else {
            for (String topic : session.spec.part.texts("topics")) {
                builder.topic(session.spec.topic(topic).address);
            }
        }
        builder.subscriptionName(journal.group);
        SubscriptionType type = conf.getSubscriptionType();
        epochs = new Epochs(type == SubscriptionType.Exclusive || type == SubscriptionType.Failover);
        connections = new Connections(streams, epochs);
        boolean isAssigned = conf.getSubscriptionType() != SubscriptionType.Failover;
        if (!isAssigned) {
            builder.consumerEventListener(new Turns());
        }
        if (receive.equals("listener")) {
            builder.messageListener(this::called);
        }
        if (isAssigned) {
            assigned(0); // before: a listener may be called before the subscription is answered
        }
        return Clients.result(builder.subscribeAsync(), "subscription " + journal.group);
    }

    /** A new epoch begins; stream 0 = the client does not say of which. */
    private void assigned(int stream) {
        MessagePosition place = new MessagePosition(stream, -1);
        place.ledger = -1;
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, place);
    }

    /** Calls of the listener that are under way are let finish; those that still come are not the session's. */
    private void awaitListener() {
        hasEnded = true;
        long end = System.nanoTime() + LISTENER_NS;
        while (listening.get() > 0 && System.nanoTime() < end) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
    }

    /** On a thread of the client's; with several threads, on several at once. */
    private void called(Consumer<byte[]> from, Message<byte[]> message) {
        listening.incrementAndGet();
        if (!hasEnded) {
            taken(from, message);
        }
        listening.decrementAndGet();
    }

    /** The application's part: note it, work, settle. On the receiving thread, or the listener's. */
    private void taken(Consumer<byte[]> from, Message<byte[]> message) {
        if (message == null) {
            return;
        }
        lookForReconnect();
        MessagePosition place = streams.place(message.getTopicName(), message.getMessageId());
        if (replay != null) {
            replay.handedOver(message.getMessageId(), place);
        }
        long number = journaled(message, place);
        journal.expose("messages_waiting_past_ack_timeout", waiting.handedOver(place.stream, message.getPublishTime()));
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
        settling.settle(from, message, place, number);
    }

    /** The number of the hand-over; a new epoch begins before it if the message is the first of a new connection. */
    private synchronized long journaled(Message<byte[]> message, MessagePosition place) {
        if (epochs.begins(place)) {
            assigned(place.stream);
        }
        return journal.deliver(place, Streams.payload(message), message.getRedeliveryCount());
    }

    private synchronized void lookForReconnect() {
        long now = System.nanoTime();
        if (now - lookedNs < LOOK_NS) { // with many topics it asks each of them
            return;
        }
        lookedNs = now;
        Consumer<byte[]> known = consumer;
        if (known != null && connections.look(known)) {
            journal.expose("reconnects", ++reconnects);
            session.report.event("disconnect", "the consumer lost a connection after epoch " + journal.epoch());
        }
    }

    /** Failover: whose turn it is, stream by stream. */
    private final class Turns implements ConsumerEventListener {
        private static final long serialVersionUID = 1L;

        @Override
        public void becameActive(Consumer<?> of, int partition) {
            assigned(streams.stream(of.getTopic(), partition));
            session.report.event("assign", of.getTopic());
        }

        @Override
        public void becameInactive(Consumer<?> of, int partition) {
            journal.note(Layout.REVOKE, new MessagePosition(streams.stream(of.getTopic(), partition), -1));
            session.report.event("revoke", of.getTopic());
        }
    }
}
