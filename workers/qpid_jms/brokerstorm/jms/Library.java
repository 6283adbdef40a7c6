package brokerstorm.jms;

import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.JMSException;

/**
 * Differences between the clients: how a connection is made and how a queue is named. Which one this is tells the
 * class path.
 */
abstract class Library {
    static final String USER = "guest";
    private static final String[] FACTORIES = {
        "org.apache.qpid.client.AMQConnectionFactory",
        "org.wso2.andes.client.AMQConnectionFactory",
        "org.apache.qpid.jms.JmsConnectionFactory",
    };
    private static final Pattern JAR =
        Pattern.compile("(.+?)(?:-client)?-([0-9][0-9A-Za-z.]*(?:-[0-9A-Za-z.]+)*)\\.jar");

    /** A lost connection was made again by the client itself. */
    interface Failovers {
        void happened();
    }

    /** The client that is on the class path, with the options of the spec. */
    static Library of(Session session) {
        Class<?> factory = factory();
        return factory.getName().endsWith(".JmsConnectionFactory")
                ? new Amqp10(session, factory)
                : new Amqp0(session, factory);
    }

    /** Lets the client refuse its options, as far as it does without a broker. */
    abstract void check();

    /** A connection, not started. */
    abstract Connection connect(Failovers failovers) throws JMSException;

    abstract Destination queue(javax.jms.Session session, String name) throws JMSException;

    private static Class<?> factory() {
        for (String name : FACTORIES) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException notThisOne) {
                continue;
            }
        }
        throw new WorkerFailure("none of the jars is a JMS client of Qpid: " + String.join(", ", FACTORIES));
    }

    /** Name and version of the client, from the name of its jar: {@code andes 3.0.2}. */
    static String version() {
        try {
            Path jar = Paths.get(factory().getProtectionDomain().getCodeSource().getLocation().toURI());
            String file = jar.getFileName().toString();
            Matcher found = JAR.matcher(file);
            return found.matches() ? found.group(1).replaceAll("^qpid$", "qpid-client") + " " + found.group(2) : file;
        } catch (java.net.URISyntaxException | WorkerFailure unknown) {
            return "unknown";
        }
    }

    /** The client's own error in place of one of reflection. */
    static WorkerFailure refused(String what, Throwable error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return new WorkerFailure(
                cause.getClass().getSimpleName(), what + ": " + cause.getMessage(),
                "check the options and the client's log (stderr.log)");
    }
}
