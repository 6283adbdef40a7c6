package brokerstorm.kafka;

import brokerstorm.kit.Death;
import brokerstorm.kit.Lane;
import brokerstorm.kit.Layout;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.Template;
import brokerstorm.kit.TransactionalClient;
import brokerstorm.kit.WorkerFailure;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producer role. Callbacks come on the client's I/O thread, or within the call when the client takes nothing. */
class ProducerRole extends OpenLoop {
    private static final long METADATA_S = 15;

    private final KafkaProducer<byte[], byte[]> producer;
    private final Outcomes outcomes;
    private final StreamIds streams;
    private final List<Metric> retries = new CopyOnWriteArrayList<>();

    ProducerRole(Session session) {
        super(session);
        Properties options = Options.of(session, ProducerConfig.configNames());
        if (!waitsWhenFull) {
            options.putIfAbsent(ProducerConfig.MAX_BLOCK_MS_CONFIG, "0");
        }
        outcomes = new Outcomes(!"0".equals(options.getProperty(ProducerConfig.RETRIES_CONFIG)));
        streams = new StreamIds(session);
        ByteArraySerializer bytes = new ByteArraySerializer();
        producer = Options.make(() -> new KafkaProducer<>(options, bytes, bytes));
    }

    @Override
    protected boolean sendsFromThreads() {
        return true;
    }

    @Override
    protected void connect() {
        session.optionsTaken();
        Set<String> topics = new LinkedHashSet<>();
        lanes.forEach(lane -> topics.add(lane.topic.address));
        topics.forEach(this::awaitMetadata);
        countRetries(producer);
    }

    private void countRetries(KafkaProducer<byte[], byte[]> producer) {
        for (Map.Entry<MetricName, ? extends Metric> metric : producer.metrics().entrySet()) {
            MetricName name = metric.getKey();
            if (name.name().equals("record-retry-total") && name.group().equals("producer-metrics")) {
                retries.add(metric.getValue());
            }
        }
    }

    /** On a thread of its own: the call may block for max.block.ms, a minute by default. */
    private void awaitMetadata(String topic) {
        FutureTask<Boolean> asked = new FutureTask<>(() -> hasMetadata(topic));
        Thread asking = new Thread(asked, "metadata");
        asking.setDaemon(true);
        asking.start();
        String why = "the client waits still";
        try {
            if (asked.get(METADATA_S, TimeUnit.SECONDS)) {
                return;
            }
        } catch (java.util.concurrent.TimeoutException waits) {
            asked.cancel(false);
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TimeoutException)) {
                throw refused(error.getCause());
            }
            why = error.getCause().getMessage();
        } catch (InterruptedException error) {
            why = "interrupted";
        }
        throw new WorkerFailure(
                "no metadata of topic " + topic + " from " + session.spec.bootstrap + " within " + METADATA_S + " s: "
                        + why,
                "check the brokers and the topic");
    }

    private static RuntimeException refused(Throwable cause) {
        return cause instanceof RuntimeException ? (RuntimeException) cause : new IllegalStateException(cause);
    }

    private boolean hasMetadata(String topic) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(METADATA_S);
        while (true) {
            try {
                producer.partitionsFor(topic);
                return true;
            } catch (TimeoutException error) { // with max.block.ms=0 the first answers come too late
                if (waitsWhenFull || System.nanoTime() > end || control.isStopped()) {
                    throw error;
                }
            }
        }
    }

    @Override
    protected void send(Send send, byte[] value) {
        Lane lane = send.lane;
        Integer partition = lane.partition < 0 ? null : lane.partition;
        byte[] key = lane.key == null ? null : lane.key.getBytes(StandardCharsets.UTF_8);
        byte[] sent = hasTemplate ? Template.body(value) : value;
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(lane.topic.address, partition, key, sent);
        if (hasTemplate) {
            record.headers().add(Template.HEADER, Template.identity(value));
            send.headers().forEach(
                    (name, text) -> record.headers().add(name, text.getBytes(StandardCharsets.UTF_8)));
        }
        headers.forEach((name, text) -> record.headers().add(name, text.getBytes(StandardCharsets.UTF_8)));
        TransactionalProducer own = (TransactionalProducer) send.client();
        (own == null ? producer : own.producer()).send(record, (metadata, error) -> answered(send, metadata, error));
    }

    private void answered(Send send, RecordMetadata metadata, Exception error) {
        if (error == null) {
            long offset = metadata.hasOffset() ? metadata.offset() : -1; // none with acks=0
            send.ok(new MessagePosition(streams.id(metadata.topic(), metadata.partition()), offset));
        } else {
            send.failed(send.isInCall() ? Layout.FAIL : outcomes.of(error), error);
        }
    }

    /** Made when it is initialised: by then this is constructed. */
    @Override
    protected TransactionalClient transactional(String id) {
        return new TransactionalProducer(() -> construct(id));
    }

    /** A client with a transactional id. */
    final KafkaProducer<byte[], byte[]> construct(String id) {
        Properties options = Options.of(session, ProducerConfig.configNames());
        options.put("client.id", session.spec.name + id.substring(id.lastIndexOf('-')));
        options.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id);
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> made = Options.make(() -> new KafkaProducer<>(options, bytes, bytes));
        countRetries(made);
        return made;
    }

    @Override
    protected Death death(Throwable error) {
        return Outcomes.death(error);
    }

    @Override
    protected void close() {
        producer.close(Duration.ofSeconds(1));
    }

    @Override
    protected Map<String, Object> exposure() {
        double count = retries.stream().mapToDouble(metric -> (Double) metric.metricValue()).sum();
        return Map.of("retriable_errors", (long) count);
    }
}
