package brokerstorm.jms;

import brokerstorm.kit.Worker;
import java.util.Map;
import javax.jms.JMSException;

/** The JMS clients of the Qpid family: one process, one role (docs/worker-protocol.md). */
public final class JmsWorker {
    private JmsWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", session -> new ConsumerRole(session).run(),
                "audit", session -> new AuditRole(session).run());
        Worker.main(args, roles, Map.of("client_version", Library.version()), JMSException.class);
    }
}
