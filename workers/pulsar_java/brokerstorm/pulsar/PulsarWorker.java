package brokerstorm.pulsar;

import brokerstorm.kit.Session;
import brokerstorm.kit.Worker;
import java.util.Map;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.PulsarClientException;

/** pulsar-client (Java): one process, one role (docs/worker-protocol.md). */
public final class PulsarWorker {
    private PulsarWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", PulsarWorker::consume,
                "audit", session -> new AuditRole(session).run());
        Worker.main(args, roles, Map.of("client_version", PulsarVersion.getVersion()), PulsarClientException.class);
    }

    private static void consume(Session session) throws Exception {
        if (session.spec.part.has("reader")) {
            new ReaderRole(session).run();
        } else {
            new ConsumerRole(session).run();
        }
    }
}
