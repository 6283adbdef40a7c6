package brokerstorm.jms;

import brokerstorm.kit.LogCapture;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import java.util.ArrayList;
import java.util.List;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;

/**
 * Audit role: takes what remains in the queues when nobody else uses them. The end of a stream is the depth of its
 * queue at the start, as the broker tells it; positions are ordinals.
 */
final class AuditRole {
    private static final int RECEIVE_MS = 200;

    private final Session worker;
    private final LogCapture capture;
    private final long stallNs;
    private final List<LogCapture.Bounds> all = new ArrayList<>();

    AuditRole(Session worker) {
        this.worker = worker;
        capture = new LogCapture(worker);
        stallNs = (long) (worker.spec.part.decimal("stall_s") * 1e9);
        for (String stream : worker.spec.part.texts("streams")) {
            all.add(new LogCapture.Bounds(worker, stream));
        }
    }

    void run() throws Exception {
        worker.report.counts(() -> java.util.Map.of("read", capture.read(), "streams_open", open()));
        JmsConnection link = new JmsConnection(worker, false, javax.jms.Session.AUTO_ACKNOWLEDGE, () -> {});
        link.session();
        worker.ready();
        worker.control.awaitStart();
        try {
            for (LogCapture.Bounds bounds : all) {
                Destination queue = link.library().queue(link.session(), bounds.stream);
                bounds.end = depth(link.session(), queue);
            }
            for (LogCapture.Bounds bounds : all) {
                read(link, bounds);
            }
        } finally {
            all.stream().filter(one -> one.why.isEmpty()).forEach(one -> one.why = "deadline");
            capture.write(all, worker.spec.part.text("isolation"));
        }
        link.close();
    }

    private long open() {
        return all.stream().filter(one -> one.why.isEmpty()).count();
    }

    /** Messages in a queue: the client has a method for it that JMS lacks. */
    private static long depth(javax.jms.Session session, Destination queue) throws JMSException {
        for (Class<?> type = session.getClass(); type != null; type = type.getSuperclass()) {
            for (java.lang.reflect.Method method : type.getMethods()) {
                if (method.getName().equals("getQueueDepth") && method.getParameterCount() == 1) {
                    try {
                        return ((Number) method.invoke(session, queue)).longValue();
                    } catch (ReflectiveOperationException error) {
                        throw Library.refused("depth of " + queue, error);
                    }
                }
            }
        }
        throw new brokerstorm.kit.WorkerFailure(
                "this client cannot tell how deep a queue is", "audit with qpid-client 6.4.0");
    }

    private void read(JmsConnection link, LogCapture.Bounds bounds) throws JMSException {
        javax.jms.Session session = link.session();
        MessageConsumer consumer = session.createConsumer(link.library().queue(session, bounds.stream));
        long movedNs = System.nanoTime();
        while (bounds.readTo < bounds.end && !worker.control.isOver()) {
            Message message = consumer.receive(RECEIVE_MS);
            if (message != null) {
                movedNs = System.nanoTime();
                capture.found(
                        new MessagePosition(bounds.streamId, bounds.readTo),
                        message.getJMSTimestamp(),
                        Bytes.of(message));
                bounds.readTo++;
            } else if (System.nanoTime() - movedNs > stallNs) {
                bounds.why = "stall";
                worker.report.event("stall", bounds.stream + " gave " + bounds.readTo + " of " + bounds.end);
                break;
            }
        }
        if (bounds.readTo >= bounds.end) {
            bounds.why = "end";
        }
        consumer.close();
    }
}
