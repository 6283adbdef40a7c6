package brokerstorm.streams;

import brokerstorm.kit.Lane;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.stream.ConfirmationStatus;
import com.rabbitmq.stream.Constants;
import com.rabbitmq.stream.EnvironmentBuilder;
import com.rabbitmq.stream.MessageBuilder;
import com.rabbitmq.stream.Producer;
import com.rabbitmq.stream.ProducerBuilder;
import com.rabbitmq.stream.StreamException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Producer role: a producer of the client for each stream, one thread.
 *
 * <p>With {@code deduplicate}, each producer has a name, and the client numbers its messages. After a lost connection
 * the client sends again what has no confirm, and the broker stores each number once.
 *
 * <p>Outcomes: a message that the client refuses within the call was never sent. Everything else without a confirm is
 * unknown.
 */
final class ProducerRole extends OpenLoop {
    private static final Set<String> OWN = Set.of("deduplicate", Streams.PORT);
    private static final long PAUSE_NS = 250_000_000;

    private final Options options;
    private final boolean deduplicates;
    private final StreamIds ids;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private volatile Streams streams;
    private long notBeforeNs = Long.MIN_VALUE;

    /** A message that has no confirm, and the client's code for the reason. */
    private static final class Unconfirmed extends StreamException {
        private static final long serialVersionUID = 1L;

        Unconfirmed(short code) {
            super("not confirmed: " + reason(code), code);
        }

        private static String reason(short code) {
            switch (code) {
                case Constants.CODE_MESSAGE_ENQUEUEING_FAILED:
                    return "the client's queue was full for too long";
                case Constants.CODE_PRODUCER_NOT_AVAILABLE:
                    return "the producer has no connection";
                case Constants.CODE_PRODUCER_CLOSED:
                    return "the producer is closed";
                case Constants.CODE_PUBLISH_CONFIRM_TIMEOUT:
                    return "no confirm in time";
                default:
                    return "code " + code;
            }
        }
    }

    ProducerRole(Session session) {
        super(session);
        options = new Options(session.spec.options, OWN, EnvironmentBuilder.class, ProducerBuilder.class);
        deduplicates = options.flag("deduplicate");
        ids = new StreamIds(session);
        for (Lane lane : lanes) {
            if (lane.mode == Lane.Mode.KEY) {
                throw new WorkerFailure("a stream has no keys: lanes of mode key cannot be sent");
            }
        }
    }

    @Override
    protected void connect() {
        streams = new Streams(session, options);
        try {
            lanes.forEach(lane -> producer(stream(lane)));
        } catch (StreamException error) {
            throw Streams.refused(error);
        }
    }

    private static String stream(Lane lane) {
        return lane.topic.name + "-" + Math.max(0, lane.partition);
    }

    private Producer producer(String stream) {
        Producer known = producers.get(stream);
        if (known != null) {
            return known;
        }
        if (System.nanoTime() < notBeforeNs) {
            throw new Unconfirmed(Constants.CODE_PRODUCER_CLOSED);
        }
        ProducerBuilder builder = options.applied(ProducerBuilder.class, streams.environment.producerBuilder())
                .stream(stream)
                .listeners(streams.watch(() -> {}));
        if (deduplicates) {
            builder.name(session.spec.name + "-" + stream);
        }
        try {
            Producer made = builder.build();
            producers.put(stream, made);
            return made;
        } catch (StreamException error) {
            notBeforeNs = System.nanoTime() + PAUSE_NS;
            throw error;
        }
    }

    @Override
    protected void send(Send send, byte[] value) {
        String stream = stream(send.lane);
        Producer producer = producer(stream);
        MessageBuilder message = producer.messageBuilder().addData(value);
        if (!headers.isEmpty()) {
            MessageBuilder.ApplicationPropertiesBuilder properties = message.applicationProperties();
            headers.forEach(properties::entry);
        }
        producer.send(message.build(), status -> answered(send, stream, producer, status));
    }

    private void answered(Send send, String stream, Producer producer, ConfirmationStatus status) {
        if (status.isConfirmed()) {
            int id = ids.id(send.lane.topic.name, Math.max(0, send.lane.partition));
            send.ok(new MessagePosition(id, -1));
            return;
        }
        if (status.getCode() == Constants.CODE_PRODUCER_CLOSED) { // the application's turn to make another one
            producers.remove(stream, producer);
        }
        send.failed(send.isInCall() ? Layout.FAIL : Layout.INFO, new Unconfirmed(status.getCode()));
    }

    @Override
    protected void close() {
        producers.values().forEach(Producer::close);
        streams.environment.close();
    }

    @Override
    protected Map<String, Object> exposure() {
        return streams == null ? Map.of() : Map.of("reconnects", streams.reconnects());
    }
}
