package brokerstorm.rabbitmq;

import brokerstorm.kit.Worker;
import com.rabbitmq.client.ConnectionFactory;
import java.io.IOException;
import java.util.Map;

/** RabbitMQ's Java client: one process, one role (docs/worker-protocol.md). */
public final class RabbitWorker {
    private RabbitWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", session -> new ConsumerRole(session).run());
        Worker.main(args, roles, Map.of("client_version", version()), IOException.class);
    }

    /** The version that the client states to brokers. */
    static String version() {
        return String.valueOf(new ConnectionFactory().getClientProperties().get("version"));
    }
}
