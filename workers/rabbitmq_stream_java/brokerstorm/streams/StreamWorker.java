package brokerstorm.streams;

import brokerstorm.kit.Worker;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.StreamException;
import java.nio.file.Paths;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** RabbitMQ's Java client of the stream protocol: one process, one role (docs/worker-protocol.md). */
public final class StreamWorker {
    private static final Pattern JAR = Pattern.compile("stream-client-(.+)\\.jar");

    private StreamWorker() {}

    public static void main(String[] args) {
        Map<String, Worker.Role> roles = Map.of(
                "producer", session -> new ProducerRole(session).run(),
                "consumer", session -> new ConsumerRole(session).run());
        Worker.main(args, roles, Map.of("client_version", version()), StreamException.class);
    }

    /** The version in the name of the client's jar. */
    static String version() {
        String jar = Environment.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        Matcher found = JAR.matcher(Paths.get(jar).getFileName().toString());
        return found.matches() ? found.group(1) : "unknown";
    }
}
