package brokerstorm.jms;

import brokerstorm.kit.Session;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.Destination;
import javax.jms.JMSException;

/**
 * qpid-jms: AMQP 1.0. Options are parameters of the client's connection URI ({@code jms.prefetchPolicy.all});
 * {@code amqp.*} and {@code transport.*} apply to each broker.
 */
final class Amqp10 extends Library {
    /** Before an option of each broker, where there are several. */
    private static final String NESTED = "failover.nested.";

    private final Class<?> factory;
    private final String client;
    private final String uri;
    private final Secured secured;
    /** Begins the addresses of queues. */
    private final String queues;

    Amqp10(Session session, Class<?> factory) {
        this.factory = factory;
        Map<String, String> given = session.spec.options;
        boolean isRabbit = given.getOrDefault(Options.RABBITMQ_ADDRESSES, "false").equals("true");
        queues = isRabbit ? "/queues/" : "";
        secured = new Secured(session, USER);
        Brokers brokers = new Brokers(session.spec);
        String ofEach = brokers.addresses.length == 1 ? "" : NESTED;
        List<String> options = new ArrayList<>();
        for (Map.Entry<String, String> option : given.entrySet()) {
            String name = option.getKey();
            if (!Options.OURS.contains(name) && !name.startsWith(Secured.PREFIX)) {
                boolean isOfEach = name.startsWith("amqp.") || name.startsWith("transport.");
                options.add((isOfEach ? ofEach : "") + name + "=" + option.getValue());
            }
        }
        if (secured.anyHost) {
            options.add(ofEach + "transport.verifyHost=false");
        }
        if (!brokers.virtualHost.isEmpty()) {
            options.add(ofEach + "amqp.vhost=" + (isRabbit ? "vhost:" : "") + brokers.virtualHost);
        }
        String scheme = secured.hasTls ? "amqps://" : "amqp://";
        this.client = brokers.client;
        String last = "?" + String.join("&", options);
        uri = brokers.addresses.length == 1
                ? scheme + brokers.addresses[0] + last
                : "failover:(" + scheme + String.join("," + scheme, brokers.addresses) + ")" + last;
    }

    /** The factory takes jms.*, the provider that it makes for a connection amqp.* and transport.*. */
    @Override
    void check() {
        made();
        try {
            Class.forName(factory.getPackage().getName() + ".provider.ProviderFactory")
                    .getMethod("create", URI.class)
                    .invoke(null, URI.create(uri));
        } catch (ReflectiveOperationException error) {
            throw refused("connection " + uri, error);
        }
    }

    private ConnectionFactory made() {
        try {
            return (ConnectionFactory) factory.getConstructor(String.class).newInstance(uri);
        } catch (ReflectiveOperationException error) {
            throw refused("connection " + uri, error);
        }
    }

    @Override
    Connection connect(Failovers failovers) throws JMSException {
        Connection connection = made().createConnection(secured.user, secured.password);
        connection.setClientID(client);
        return connection;
    }

    @Override
    Destination queue(javax.jms.Session session, String name) throws JMSException {
        return session.createQueue(queues + name);
    }
}
