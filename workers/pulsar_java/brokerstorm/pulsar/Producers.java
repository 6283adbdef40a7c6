package brokerstorm.pulsar;

import brokerstorm.kit.Lane;
import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.interceptor.ProducerInterceptor;
import org.apache.pulsar.client.impl.ProducerBuilderImpl;
import org.apache.pulsar.client.impl.conf.ProducerConfigurationData;

/** One client, and a Producer of it for each topic of its lanes (for each partition where a lane names one). */
final class Producers {
    final Map<String, Target> targets = new LinkedHashMap<>();
    final Observer observer = new Observer();
    PulsarClient client;
    boolean isChunking;

    private final Map<Lane, Target> routes = new IdentityHashMap<>();
    private final Session session;
    private ProducerBuilderImpl<byte[]> common;

    /** A Producer and what we see of it. */
    static final class Target {
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
    static final class Observer implements ProducerInterceptor {
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

    Producers(Session session, List<Lane> lanes) {
        this.session = session;
        for (Lane lane : lanes) {
            String address = Streams.address(lane.topic, lane.partition);
            routes.put(lane, targets.computeIfAbsent(address, Target::new));
        }
    }

    Target of(Lane lane) {
        return routes.get(lane);
    }

    /**
     * Makes the client with its options.
     *
     * @param waitsWhenFull a patient application; the option itself has the last word
     * @param transacts with transactions, for which it asks the brokers at once; else it asks nobody
     */
    void configure(boolean waitsWhenFull, boolean transacts) throws Exception {
        Map<String, String> asked = new LinkedHashMap<>(session.spec.options);
        asked.put("enableTransaction", String.valueOf(transacts));
        Options options = new Options(asked);
        client = Clients.make(session, options);
        common = (ProducerBuilderImpl<byte[]>) client.newProducer(Schema.BYTES);
        ProducerConfigurationData conf = common.getConf();
        conf.setBlockIfQueueFull(waitsWhenFull);
        options.apply(conf, "topicName", "customMessageRouter");
        Clients.refuseOthers(options);
        isChunking = conf.isChunkingEnabled();
    }

    /** ProducerBase.newMessage refuses every message otherwise. */
    void refuseTimeout() {
        long timeoutMs = common.getConf().getSendTimeoutMs();
        if (timeoutMs > 0) {
            throw new WorkerFailure(
                    "sendTimeoutMs=" + timeoutMs + ": the client takes no message of a transaction from a producer with"
                            + " a send timeout",
                    "leave sendTimeoutMs out, or set it to 0");
        }
    }

    /** Returns when each of them is there. */
    void open() throws Exception {
        List<CompletableFuture<Producer<byte[]>>> made = new ArrayList<>();
        for (Target target : targets.values()) {
            made.add(common.clone().intercept(observer).topic(target.address).createAsync());
        }
        int i = 0;
        for (Target target : targets.values()) {
            target.producer = Clients.result(made.get(i++), "producer for " + target.address);
            target.name = session.names.id("client_name", target.producer.getProducerName());
        }
    }

    int unanswered() {
        return targets.values().stream().mapToInt(target -> target.open.get()).sum();
    }
}
