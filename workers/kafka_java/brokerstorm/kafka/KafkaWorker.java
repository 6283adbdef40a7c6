package brokerstorm.kafka;

import brokerstorm.kit.Session;
import brokerstorm.kit.Worker;
import brokerstorm.kit.WorkerFailure;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.kafka.common.KafkaException;

/** kafka-clients (Java): one process, one role (docs/worker-protocol.md). */
public final class KafkaWorker {
    private KafkaWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", session -> consumer(session).run(),
                "pipeline", session -> newer("PipelineRole", session, "pipelines need 2.5.0").run());
        Worker.main(args, roles, Map.of("client_version", ClientVersion.text()), KafkaException.class);
    }

    /** A member that is assigned partitions, or one of a share group, of which older clients know nothing. */
    private static Runnable consumer(Session session) throws ReflectiveOperationException {
        String type = session.spec.options.getOrDefault(Options.GROUP_TYPE, "consumer");
        if (type.equals("consumer")) {
            return new ConsumerRole(session);
        }
        if (!type.equals("share")) {
            throw new WorkerFailure(Options.GROUP_TYPE + " '" + type + "': must be consumer or share");
        }
        return newer("ShareRole", session, "share groups came with 4.2.0");
    }

    /** A role that is compiled only against clients that have what it takes. */
    private static Runnable newer(String role, Session session, String hint) throws ReflectiveOperationException {
        try {
            return (Runnable) Class.forName("brokerstorm.kafka." + role)
                    .getDeclaredConstructor(Session.class).newInstance(session);
        } catch (ClassNotFoundException error) {
            throw new WorkerFailure("kafka-clients " + ClientVersion.text() + " is too old", hint);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException) {
                throw (RuntimeException) error.getCause();
            }
            throw error;
        }
    }
}
