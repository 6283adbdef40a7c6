package brokerstorm.jms;

import brokerstorm.kit.Lane;
import brokerstorm.kit.Layout;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.StreamIds;
import brokerstorm.kit.Template;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageProducer;

/**
 * Producer role: one connection, one session, one thread. The client's calls block; a message of a transacted session
 * has its outcome with the commit.
 */
final class ProducerRole extends OpenLoop {
    private final int deliveryMode;
    private final int perTransaction;
    private final StreamIds streams;
    private final JmsConnection link;
    private final Map<String, MessageProducer> producers = new HashMap<>();
    private final List<Send> uncommitted = new ArrayList<>();

    ProducerRole(Session session) {
        super(session);
        deliveryMode = Options.deliveryMode(session.spec.options);
        perTransaction = Options.transacted(session.spec.options);
        streams = new StreamIds(session);
        link = new JmsConnection(session, perTransaction > 0, javax.jms.Session.AUTO_ACKNOWLEDGE, () -> {});
    }

    @Override
    protected void connect() throws JMSException {
        link.session();
        for (Lane lane : lanes) {
            producer(lane);
        }
    }

    private MessageProducer producer(Lane lane) throws JMSException {
        String queue = queue(lane);
        MessageProducer known = producers.get(queue);
        if (known == null) {
            known = link.session().createProducer(link.library().queue(link.session(), queue));
            known.setDeliveryMode(deliveryMode);
            producers.put(queue, known);
        }
        return known;
    }

    private static String queue(Lane lane) {
        return lane.topic.name + "-" + Math.max(0, lane.partition);
    }

    @Override
    protected void send(Send send, byte[] value) {
        if (link.loss() != null) {
            lost(link.loss());
        }
        MessageProducer producer;
        try {
            producer = producer(send.lane);
        } catch (JMSException error) { // there is no session: nothing was sent
            lost(error);
            send.failed(Layout.FAIL, error);
            return;
        }
        try {
            Message message = Bytes.message(link.current(), hasTemplate ? Template.body(value) : value);
            if (hasTemplate) {
                String identity = Base64.getEncoder().encodeToString(Template.identity(value));
                message.setStringProperty(Template.HEADER, identity);
                for (Map.Entry<String, String> header : send.headers().entrySet()) {
                    message.setStringProperty(header.getKey(), header.getValue());
                }
            }
            for (Map.Entry<String, String> header : headers.entrySet()) {
                message.setStringProperty(header.getKey(), header.getValue());
            }
            producer.send(message);
        } catch (JMSException error) {
            send.failed(Outcomes.ofSend(error), error);
            lost(error);
            return;
        }
        if (perTransaction == 0) {
            send.ok(place(send));
            return;
        }
        uncommitted.add(send);
        if (uncommitted.size() >= perTransaction) {
            commit();
        }
    }

    private MessagePosition place(Send send) {
        return new MessagePosition(streams.id(send.lane.topic.name, Math.max(0, send.lane.partition)), -1);
    }

    private void commit() {
        if (uncommitted.isEmpty()) {
            return;
        }
        try {
            link.current().commit();
        } catch (JMSException error) {
            lost(error);
            return;
        }
        uncommitted.forEach(send -> send.ok(place(send)));
        uncommitted.clear();
    }

    /** The session is broken: nobody knows what became of its transaction. */
    private void lost(JMSException error) {
        uncommitted.forEach(send -> send.failed(Layout.INFO, error));
        uncommitted.clear();
        if (link.isOpen()) {
            link.broken(error);
        }
        producers.clear();
    }

    @Override
    protected void flush() {
        commit();
    }

    @Override
    protected void loadEnded() {
        commit();
    }

    @Override
    protected void close() throws JMSException {
        link.close();
    }

    @Override
    protected Map<String, Object> exposure() {
        return link == null ? Map.of() : Map.of("reconnects", link.reconnects());
    }
}
