package brokerstorm.rabbitmq;

import brokerstorm.kit.Control;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Consumer role: one channel, a consumer for each queue.
 *
 * <p>The client hands messages over on a thread of its own. The application works there ({@code receive: listener}), or
 * puts them into a queue that its main thread empties ({@code receive: loop}).
 */
final class ConsumerRole implements AmqpLink.User {
    private static final Set<String> OWN = Set.of("prefetchCount", "ackEvery", "streamOffset");
    private static final String STREAM_OFFSET = "x-stream-offset";
    private static final long LOOK_MS = 50;
    /** Messages without an acknowledgement are acknowledged when nothing came for so long. */
    private static final long IDLE_NS = 300_000_000;

    private final Session worker;
    private final Control control;
    private final Journal journal;
    private final StreamIds streams;
    private final List<String> topics;
    private final boolean isListener;
    private final boolean acknowledges;
    private final boolean settlesItself;
    private final long nackEvery;
    private final long workNs;
    private final int prefetch;
    private final long ackEvery;
    /** Where streams are read from: first or next; empty = the topics are queues. */
    private final String streamOffset;
    /** By stream, the offset after the last message that the application was given. */
    private final Map<Integer, Long> next = new ConcurrentHashMap<>();
    private final AmqpLink link;
    private final BlockingQueue<Delivery> waiting = new LinkedBlockingQueue<>();
    /** The last message that is not acknowledged yet; null = there is none. */
    private Delivery unsettled;
    private long unsettledCount;
    private volatile long lastNs = System.nanoTime();

    /** A message as the client hands it over. */
    private static final class Delivery {
        final Channel channel;
        final int stream;
        /** Offset in a stream; -1 = it is of a queue. */
        final long position;
        final Envelope envelope;
        final byte[] body;

        Delivery(Channel channel, int stream, long position, Envelope envelope, byte[] body) {
            this.channel = channel;
            this.stream = stream;
            this.position = position;
            this.envelope = envelope;
            this.body = body;
        }
    }

    ConsumerRole(Session worker) {
        Spec.Section part = worker.spec.part;
        Options options = new Options(worker.spec.options, OWN);
        this.worker = worker;
        control = worker.control;
        journal = new Journal(worker);
        streams = new StreamIds(worker);
        topics = part.texts("topics");
        isListener = oneOf("receive", part.text("receive", "loop"), "loop", "listener").equals("listener");
        acknowledges = oneOf("settle", part.text("settle", "auto"), "auto", "ack", "none").equals("ack");
        settlesItself = part.text("settle", "auto").equals("auto");
        nackEvery = part.number("nack_every", 0);
        workNs = (long) (part.decimal("work_s", 0) * 1e9);
        prefetch = (int) options.number("prefetchCount", 0);
        ackEvery = options.number("ackEvery", 1);
        if (ackEvery < 1) {
            throw new WorkerFailure("amqp-client: ackEvery=" + ackEvery + " must be 1 or more");
        }
        streamOffset = options.text("streamOffset").replace("none", "");
        if (!streamOffset.isEmpty()) {
            oneOf("streamOffset", streamOffset, "first", "next");
            if (options.factory().isAutomaticRecoveryEnabled()) {
                throw new WorkerFailure(
                        "amqp-client: streamOffset requires automaticRecoveryEnabled=false: the client would consume "
                                + "from the same offset again after each recovery",
                        "automaticRecoveryEnabled: false");
            }
        }
        link = new AmqpLink(worker, options, this);
    }

    private static String oneOf(String key, String value, String... allowed) {
        if (!List.of(allowed).contains(value)) {
            throw new WorkerFailure(key + " '" + value + "': this worker has " + String.join(" and ", allowed));
        }
        return value;
    }

    void run() throws Exception {
        worker.report.counts(journal::counts);
        link.start();
        worker.ready();
        while (!control.isOver()) {
            try {
                link.channel();
                Delivery next = isListener ? pause() : waiting.poll(LOOK_MS, TimeUnit.MILLISECONDS);
                if (next != null) {
                    taken(next);
                } else if (System.nanoTime() - lastNs > IDLE_NS) {
                    settleRest();
                }
            } catch (IOException | ShutdownSignalException gone) { // the next look asks for another channel
                pause();
            }
        }
        finish();
    }

    private static Delivery pause() {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(LOOK_MS));
        return null;
    }

    @Override
    public void opened(Channel channel) throws IOException {
        channel.basicQos(prefetch);
        assigned();
        for (String topic : topics) {
            int stream = streams.id(topic, 0);
            channel.basicConsume(topic + "-0", settlesItself, from(stream), new Taking(channel, stream));
        }
    }

    /** Arguments of a consumer: a stream is read on from where the application is. */
    private Map<String, Object> from(int stream) {
        if (streamOffset.isEmpty()) {
            return Map.of();
        }
        Long at = next.get(stream);
        return Map.of(STREAM_OFFSET, at == null ? (Object) streamOffset : at);
    }

    /** Hands over what comes from one queue. */
    private final class Taking extends DefaultConsumer {
        private final int stream;

        Taking(Channel channel, int stream) {
            super(channel);
            this.stream = stream;
        }

        @Override
        public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties of, byte[] body)
                throws IOException {
            Object offset = of.getHeaders() == null ? null : of.getHeaders().get(STREAM_OFFSET);
            long position = streamOffset.isEmpty() || !(offset instanceof Long) ? -1 : (Long) offset;
            Delivery found = new Delivery(getChannel(), stream, position, envelope, body);
            if (isListener) {
                taken(found);
            } else {
                waiting.add(found);
            }
        }

        /** The broker ended the consumer: its queue was deleted, or the node of a classic queue is down. */
        @Override
        public void handleCancel(String tag) {
            worker.report.event("disconnect", "the broker cancelled the consumer " + tag);
            link.renew();
        }
    }

    private void assigned() {
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, new MessagePosition());
        journal.expose("reconnects", link.reconnects());
    }

    @Override
    public void recovered(Channel channel) {
        assigned();
    }

    @Override
    public void lost(Channel channel, ShutdownSignalException cause) {
        if (cause.isHardError() && channel instanceof Recoverable) {
            return; // the client knows which messages the restored channel does not have
        }
        waiting.removeIf(each -> each.channel == channel);
        synchronized (this) {
            unsettled = null;
            unsettledCount = 0;
        }
    }

    /** The application's part: note the message, work, acknowledge. */
    private synchronized void taken(Delivery given) throws IOException {
        if (control.isStopped()) {
            return; // goes back with the channel
        }
        lastNs = System.nanoTime();
        int redelivery = given.envelope.isRedeliver() ? 1 : 0;
        long number = journal.deliver(new MessagePosition(given.stream, given.position), given.body, redelivery);
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
        if (given.position >= 0) { // this lets the broker send more, and settles nothing
            next.put(given.stream, given.position + 1);
            given.channel.basicAck(given.envelope.getDeliveryTag(), false);
            return;
        }
        if (!acknowledges) {
            return;
        }
        if (nackEvery > 0 && number % nackEvery == 0) {
            settleRest(); // those before it are acknowledged, not refused with it
            journal.note(Layout.NACK, new MessagePosition());
            given.channel.basicNack(given.envelope.getDeliveryTag(), false, true);
            return;
        }
        unsettled = given;
        unsettledCount++;
        if (unsettledCount >= ackEvery) {
            settleRest();
        }
    }

    /** Acknowledges what is open. The broker does not answer, so no row says that it confirmed it. */
    private synchronized void settleRest() throws IOException {
        Delivery last = unsettled;
        if (last == null) {
            return;
        }
        unsettled = null;
        unsettledCount = 0;
        journal.note(Layout.ACK_CALLED, new MessagePosition());
        last.channel.basicAck(last.envelope.getDeliveryTag(), ackEvery > 1);
    }

    private void finish() throws IOException {
        try {
            settleRest();
        } catch (IOException | ShutdownSignalException error) {
            worker.report.error(error.getClass().getSimpleName(), ErrorTexts.text(error));
        }
        link.close();
    }
}
