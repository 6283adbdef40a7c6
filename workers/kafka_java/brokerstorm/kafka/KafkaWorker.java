package brokerstorm.kafka;

import brokerstorm.kit.Worker;
import java.util.Map;
import org.apache.kafka.common.KafkaException;

/** kafka-clients (Java): one process, one role (docs/worker-protocol.md). */
public final class KafkaWorker {
    private KafkaWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", session -> new ConsumerRole(session).run());
        Worker.main(args, roles, Map.of("client_version", ClientVersion.text()), KafkaException.class);
    }
}
