package brokerstorm.rabbitmq;

import brokerstorm.kit.Lane;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Producer role: one channel, one thread.
 *
 * <p>With {@code confirms}, a message has its outcome by the confirm of the broker. Without, it has one when the client
 * wrote it to its socket, and it is not known whether a broker has it.
 *
 * <p>Outcomes (AMQChannel.java and AMQCommand.java of the client): {@link AlreadyClosedException} comes from a check
 * before the first byte is written, so nothing was sent. A returned message was taken by no queue. Everything else is
 * unknown: a refusal (a broker may have a part of it), and the end of the channel.
 */
final class ProducerRole extends OpenLoop implements AmqpLink.User {
    private static final Set<String> OWN =
            Set.of("confirms", "confirmEvery", "maxUnconfirmed", "mandatory", "deliveryMode");
    private static final int PERSISTENT = 2;

    private final boolean confirms;
    private final boolean isMandatory;
    private final long confirmEvery;
    private final long maxUnconfirmed;
    private final AMQP.BasicProperties properties;
    private final StreamIds streams;
    private final AmqpLink link;
    private final AtomicLong refused = new AtomicLong();
    private volatile Unconfirmed unconfirmed;
    private long published;

    /** The broker refused a message (basic.nack). */
    private static final class Nack extends IOException {
        private static final long serialVersionUID = 1L;

        Nack() {
            super("the broker refused the message");
        }
    }

    /** The broker returned a message that no queue takes. */
    private static final class Returned extends IOException {
        private static final long serialVersionUID = 1L;

        Returned(int code, String text) {
            super(code + " " + text);
        }
    }

    ProducerRole(Session session) {
        super(session);
        Options options = new Options(session.spec.options, OWN);
        confirms = options.flag("confirms");
        isMandatory = options.flag("mandatory");
        confirmEvery = options.number("confirmEvery", 0);
        maxUnconfirmed = options.number("maxUnconfirmed", 0);
        if (!confirms && (isMandatory || confirmEvery > 0)) {
            throw new WorkerFailure(
                    "amqp-client: mandatory and confirmEvery require confirms", "confirms=true, or leave them out");
        }
        for (Lane lane : lanes) {
            if (lane.mode == Lane.Mode.KEY) {
                throw new WorkerFailure("a queue has no keys: lanes of mode key cannot be sent");
            }
        }
        properties = new AMQP.BasicProperties.Builder()
                .deliveryMode((int) options.number("deliveryMode", PERSISTENT))
                .headers(headers.isEmpty() ? null : new HashMap<String, Object>(headers))
                .build();
        streams = new StreamIds(session);
        link = new AmqpLink(session, options, this);
    }

    @Override
    protected void connect() {
        link.start();
    }

    private static String queue(Lane lane) {
        return lane.topic.name + "-" + Math.max(0, lane.partition);
    }

    @Override
    public void opened(Channel channel) throws IOException {
        for (Lane lane : lanes) {
            channel.queueDeclarePassive(queue(lane)); // it must exist
        }
        if (!confirms) {
            return;
        }
        Unconfirmed waits = new Unconfirmed(control);
        channel.confirmSelect();
        channel.addConfirmListener(new ConfirmListener() {
            @Override
            public void handleAck(long number, boolean isMultiple) {
                waits.take(number, isMultiple).forEach(send -> send.ok(place(send)));
            }

            @Override
            public void handleNack(long number, boolean isMultiple) {
                List<Send> taken = waits.take(number, isMultiple);
                refused.addAndGet(taken.size());
                taken.forEach(send -> send.failed(Layout.INFO, new Nack()));
            }
        });
        // The broker returns a message before it confirms it, and the client reports both in that order.
        channel.addReturnListener((code, text, exchange, key, of, body) -> waits
                .take(Long.parseLong(of.getMessageId()), false)
                .forEach(send -> send.failed(Layout.FAIL, new Returned(code, text))));
        unconfirmed = waits;
    }

    @Override
    public void recovered(Channel channel) {
        if (unconfirmed != null) {
            unconfirmed.restart();
        }
    }

    @Override
    public void lost(Channel channel, ShutdownSignalException cause) {
        if (unconfirmed != null) {
            unconfirmed.end().forEach(send -> send.failed(Layout.INFO, cause));
        }
    }

    private MessagePosition place(Send send) {
        return new MessagePosition(streams.id(send.lane.topic.name, Math.max(0, send.lane.partition)), -1);
    }

    @Override
    protected void send(Send send, byte[] value) throws IOException {
        Channel channel = link.channel(); // without one nothing is sent, and the send has failed
        if (confirms) {
            publishConfirmed(channel, send, value);
            return;
        }
        try {
            channel.basicPublish("", queue(send.lane), properties, value);
        } catch (AlreadyClosedException before) {
            send.failed(Layout.FAIL, before);
            return;
        } catch (IOException | ShutdownSignalException error) {
            send.failed(Layout.INFO, error);
            return;
        }
        send.ok(place(send));
    }

    private void publishConfirmed(Channel channel, Send send, byte[] value) throws IOException {
        Unconfirmed waits = unconfirmed;
        if (!waits.awaitRoom(maxUnconfirmed)) {
            throw new IOException("the channel is closed");
        }
        long number = channel.getNextPublishSeqNo();
        if (!waits.add(number, send)) {
            throw new IOException("the channel is closed");
        }
        AMQP.BasicProperties own = isMandatory
                ? properties.builder().messageId(String.valueOf(number)).build()
                : properties;
        try {
            channel.basicPublish("", queue(send.lane), isMandatory, own, value);
        } catch (AlreadyClosedException before) {
            waits.take(number, false).forEach(each -> each.failed(Layout.FAIL, before));
            return;
        } catch (IOException | ShutdownSignalException error) {
            waits.take(number, false).forEach(each -> each.failed(Layout.INFO, error));
            return;
        }
        published++;
        if (confirmEvery > 0 && published % confirmEvery == 0) {
            waits.awaitAll();
        }
    }

    @Override
    protected void close() throws IOException {
        link.close();
    }

    @Override
    protected Map<String, Object> exposure() {
        return link == null
                ? Map.of()
                : Map.of(
                        "reconnects", link.reconnects(), "blocked", link.blocked(), "refused_confirms", refused.get());
    }
}
