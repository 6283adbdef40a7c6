package brokerstorm.pulsar;

import brokerstorm.kit.Death;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Lane;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.interceptor.ProducerInterceptor;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.client.impl.ProducerBuilderImpl;
import org.apache.pulsar.client.impl.conf.ProducerConfigurationData;

/**
 * Producer role: one client, a Producer for each topic (for each partition where a lane names
 * one). Answers come on the client's I/O threads.
 */
final class ProducerRole extends OpenLoop {
    private final Map<String, Target> targets = new LinkedHashMap<>();
    private final Map<Lane, Target> routes = new IdentityHashMap<>();
    /** Of the sending thread: where it sent since its last {@link #flush}. */
    private final ThreadLocal<Set<Target>> unflushed = ThreadLocal.withInitial(LinkedHashSet::new);
    private final Streams streams;
    private final AtomicLong reconnects = new AtomicLong();
    private final AtomicLong reconnectsWithPending = new AtomicLong();
    private final Observer observer = new Observer();
    private PulsarClient client;
    private Outcomes outcomes;

    /** A Producer and what we see of it. */
    private static final class Target {
        final String address;
        final AtomicInteger open = new AtomicInteger();
        Producer<byte[]> producer;
        int name;
        long disconnectedMs;

        Target(String address) {
            this.address = address;
        }
    }

    /** Sees the very message of a call, to read the sequence id the client gives it; changes nothing. */
    private static final class Observer implements ProducerInterceptor {
        /** Of the sending thread. */
        final ThreadLocal<Message<?>> sending = new ThreadLocal<>();

        @Override
        public void close() {}

        @Override
        public boolean eligible(Message message) {
            return true;
        }

        @Override
        public Message beforeSend(Producer producer, Message message) {
            sending.set(message);
            return message;
        }

        @Override
        public void onSendAcknowledgement(Producer producer, Message message, MessageId id, Throwable error) {}
    }

    ProducerRole(Session session) {
        super(session);
        streams = new Streams(session);
        for (Lane lane : lanes) {
            String address = Streams.address(lane.topic, lane.partition);
            routes.put(lane, targets.computeIfAbsent(address, Target::new));
        }
    }

    @Override
    protected boolean sendsFromThreads() {
        return true;
    }

    @Override
    protected void connect() throws Exception {
        Options options = new Options(session.spec.options);
        client = Clients.make(session, options);
        ProducerBuilderImpl<byte[]> common = (ProducerBuilderImpl<byte[]>) client.newProducer(Schema.BYTES);
        ProducerConfigurationData conf = common.getConf();
        conf.setBlockIfQueueFull(waitsWhenFull); // a patient application; the option itself has the last word
        options.apply(conf, "topicName", "customMessageRouter");
        Clients.refuseOthers(options);
        session.optionsTaken();
        outcomes = new Outcomes(conf.isChunkingEnabled());
        List<CompletableFuture<Producer<byte[]>>> made = new ArrayList<>();
        for (Target target : targets.values()) {
            ProducerBuilder<byte[]> builder = common.clone().intercept(observer).topic(target.address);
            made.add(builder.createAsync());
        }
        int i = 0;
        for (Target target : targets.values()) {
            target.producer = Clients.result(made.get(i++), "producer for " + target.address);
            target.name = session.names.id("client_name", target.producer.getProducerName());
        }
        session.report.everyTick(this::look);
    }

    @Override
    protected void send(Send send, byte[] value) {
        Target target = routes.get(send.lane);
        TypedMessageBuilder<byte[]> message = target.producer.newMessage().value(value);
        if (!headers.isEmpty()) {
            message.properties(headers);
        }
        if (send.lane.key != null) {
            message.key(send.lane.key);
        }
        unflushed.get().add(target);
        target.open.incrementAndGet();
        observer.sending.remove();
        CompletableFuture<MessageId> answer = message.sendAsync();
        Message<?> sent = observer.sending.get();
        answer.whenComplete((id, error) -> {
            target.open.decrementAndGet();
            if (error == null) {
                send.ok(named(streams.place(target.address, id), target, sent));
            } else {
                Throwable cause = ErrorTexts.cause(error);
                int outcome = send.isInCall() ? outcomes.ofCall(cause) : outcomes.of(cause);
                send.failed(outcome, cause, named(new MessagePosition(), target, sent));
            }
        });
    }

    private static MessagePosition named(MessagePosition place, Target target, Message<?> sent) {
        place.clientName = target.name;
        place.clientSeq = sent instanceof MessageImpl ? sequence((MessageImpl<?>) sent) : -1;
        return place;
    }

    /** The client's sequence id; -1 when it gave none, or (2.7) is done with the message. */
    private static long sequence(MessageImpl<?> sent) {
        try {
            return sent.getSequenceId();
        } catch (RuntimeException gone) {
            return -1;
        }
    }

    @Override
    protected void flush() {
        unflushed.get().forEach(target -> target.producer.flushAsync());
        unflushed.get().clear();
    }

    @Override
    protected Death death(Throwable error) {
        return Outcomes.death(ErrorTexts.cause(error));
    }

    @Override
    protected void close() {
        Clients.close(client);
    }

    @Override
    protected Map<String, Object> exposure() {
        return Map.of("reconnects", reconnects.get(), "reconnects_with_pending", reconnectsWithPending.get());
    }

    /** On the ticking thread: which producers lost their connection since the last look, and had sends open. */
    private void look() {
        int lost = 0;
        int pending = 0;
        for (Target target : targets.values()) {
            long at = target.producer.getLastDisconnectedTimestamp();
            if (at != target.disconnectedMs) {
                target.disconnectedMs = at;
                lost++;
                pending += target.open.get() > 0 ? 1 : 0;
            }
        }
        if (lost > 0) {
            reconnects.addAndGet(lost);
            reconnectsWithPending.addAndGet(pending);
            String text = lost + " of " + targets.size() + " producers lost their connection, " + pending
                    + " with sends open";
            session.report.event("disconnect", text);
        }
    }
}
