package brokerstorm.streams;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.EnvironmentBuilder;
import com.rabbitmq.stream.Resource;
import com.rabbitmq.stream.StreamException;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLException;

/** The client's connections to a cluster, which it makes and restores by itself. */
final class Streams {
    static final String SECURE = "secure.";
    /** Option of the worker itself: the port of the stream protocol, the same on every node. */
    static final String PORT = "streamPort";
    private static final String GUEST = "guest";

    private final Session session;
    private final AtomicLong reconnects = new AtomicLong();
    final Environment environment;

    Streams(Session session, Options options) {
        this.session = session;
        Spec spec = session.spec;
        Map<String, String> given = spec.options;
        String[] parts = spec.bootstrap.split("/", 2);
        EnvironmentBuilder builder = options.applied(EnvironmentBuilder.class, Environment.builder())
                .id(String.format("%s-%08x", spec.name, spec.runTag))
                .virtualHost((parts.length > 1 ? parts[1] : "").split("\\?", 2)[0])
                .username(given.getOrDefault(SECURE + "user", GUEST))
                .password(given.getOrDefault(SECURE + "password", GUEST));
        boolean hasTls = given.containsKey(SECURE + "tls");
        List<String> brokers = new ArrayList<>();
        for (String broker : parts[0].split(",")) {
            String host = broker.substring(0, broker.lastIndexOf(':'));
            brokers.add((hasTls ? "rabbitmq-stream+tls://" : "rabbitmq-stream://") + host + ":" + options.text(PORT));
        }
        builder.uris(brokers);
        if (hasTls) {
            builder.tls().sslContext(trusting(given.get(SECURE + "ca")));
        }
        session.optionsTaken();
        try {
            environment = builder.build();
        } catch (StreamException error) {
            throw refused(error);
        }
    }

    private static io.netty.handler.ssl.SslContext trusting(String ca) {
        try {
            SslContextBuilder made = SslContextBuilder.forClient();
            return (ca == null ? made : made.trustManager(new File(ca))).build();
        } catch (SSLException | IllegalArgumentException error) {
            throw new WorkerFailure("stream-client: TLS: " + error.getMessage(), "check tls of the connection file");
        }
    }

    /** The error of a client that cannot start. */
    static WorkerFailure refused(RuntimeException error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return new WorkerFailure(
                cause.getClass().getSimpleName(),
                "stream-client refused to start: " + ErrorTexts.text(cause),
                "check the options and the client's log (stderr.log)");
    }

    /** Reports each loss and each recovery of a producer or consumer. */
    Resource.StateListener watch(Runnable recovered) {
        return context -> {
            if (context.currentState() == Resource.State.RECOVERING) {
                session.report.event("disconnect", "the client lost its connection and recovers");
            } else if (context.previousState() == Resource.State.RECOVERING
                    && context.currentState() == Resource.State.OPEN) {
                reconnects.incrementAndGet();
                session.report.event("connect", "connected again");
                recovered.run();
            }
        };
    }

    long reconnects() {
        return reconnects.get();
    }
}
