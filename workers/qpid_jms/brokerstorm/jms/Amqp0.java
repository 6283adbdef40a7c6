package brokerstorm.jms;

import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.JMSException;

/**
 * qpid-client and andes: AMQP 0-8, 0-9, 0-9-1 and 0-10.
 *
 * <p>Options are the client's own: {@code qpid.*} and {@code max_prefetch} are its system properties, {@code broker.*}
 * its options of a broker in the list ({@code broker.retries}), all others its options of a connection URL
 * ({@code maxprefetch}, {@code failover}). With {@code qpid.amqp.version} the port that speaks only this version is
 * taken, where there is one: the first clients open with another one and follow the broker's answer.
 */
final class Amqp0 extends Library {
    private static final String AMQP_VERSION = "qpid.amqp.version";
    /** Ports of compose/qpid/compose.yaml, counted from the client port. */
    private static final Map<String, Integer> PORTS =
            Map.of("0-8", 0, "0-9", 1, "0-9-1", 2, "0-91", 2, "0-10", 3);
    private static final String MAX_PREFETCH = "maxprefetch";
    private static final String OF_BROKER = "broker.";

    private final Class<?> factory;
    private final String url;
    private final Secured secured;

    Amqp0(Session session, Class<?> factory) {
        this.factory = factory;
        Map<String, String> options = session.spec.options;
        // Queues are named in the older of the client's two ways, which every version knows.
        System.setProperty("qpid.dest_syntax", "BURL");
        List<String> ofBroker = new ArrayList<>();
        List<String> ofUrl = new ArrayList<>();
        TreeSet<String> known = constants("", ".jms.ConnectionURL");
        TreeSet<String> knownOfBroker = constants(OF_BROKER, ".client.BrokerDetails", ".jms.BrokerDetails");
        boolean choosesFailover = false;
        for (Map.Entry<String, String> option : options.entrySet()) {
            String name = option.getKey();
            String value = option.getValue();
            if (Options.OURS.contains(name) || name.startsWith(Secured.PREFIX)) {
                continue;
            } else if (name.startsWith("qpid.") || name.equals("max_prefetch")) {
                System.setProperty(name, value);
            } else if (name.startsWith(OF_BROKER)) {
                if (!knownOfBroker.isEmpty() && !knownOfBroker.contains(name)) {
                    throw unknown(name, knownOfBroker);
                }
                ofBroker.add(name.substring(OF_BROKER.length()) + "='" + value + "'");
            } else if (known.isEmpty() || known.contains(name)) {
                ofUrl.add(name + "='" + value + "'");
                choosesFailover |= name.equals("failover");
            } else if (!name.equals(MAX_PREFETCH)) { // 0.5 has a property only, see below
                throw unknown(name, known);
            }
        }
        if (options.containsKey(MAX_PREFETCH)) {
            System.setProperty("max_prefetch", options.get(MAX_PREFETCH));
        }
        secured = new Secured(session, USER);
        if (secured.hasTls) {
            ofBroker.add("ssl='true'");
            ofBroker.add("ssl_verify_hostname='" + !secured.anyHost + "'");
        }
        Brokers brokers = new Brokers(session.spec);
        if (brokers.addresses.length > 1 && !choosesFailover) {
            ofUrl.add("failover='roundrobin'"); // one broker serves at a time
        }
        int offset = offset(options);
        url = url(brokers, brokers.portPerVersion ? offset : 0, ofBroker, ofUrl);
    }

    private static int offset(Map<String, String> options) {
        String version = options.get(AMQP_VERSION);
        if (version == null) {
            return 0;
        }
        Integer offset = PORTS.get(version);
        if (offset == null) {
            throw new WorkerFailure(AMQP_VERSION + "=" + version + ": must be one of " + new TreeSet<>(PORTS.keySet()));
        }
        return offset;
    }

    private static String url(Brokers brokers, int offset, List<String> ofBroker, List<String> ofUrl) {
        List<String> list = new ArrayList<>();
        for (String broker : brokers.addresses) {
            int colon = broker.lastIndexOf(':');
            int port = Integer.parseInt(broker.substring(colon + 1)) + offset;
            String options = ofBroker.isEmpty() ? "" : "?" + String.join("&", ofBroker);
            list.add("tcp://" + broker.substring(0, colon) + ":" + port + options);
        }
        ofUrl.add(0, "brokerlist='" + String.join(";", list) + "'");
        String user = USER + ":" + USER;
        return "amqp://" + user + "@" + brokers.client + "/" + brokers.virtualHost + "?" + String.join("&", ofUrl);
    }

    private static WorkerFailure unknown(String name, TreeSet<String> known) {
        return new WorkerFailure(
                "qpid-jms-legacy " + version() + " has no option " + name + DidYouMean.guess(name, known),
                "options are those of its connection URL, broker.* of a broker, and qpid.* properties");
    }

    /** Names of options behind a prefix, as this version of the client lists them in a class; empty: it does not. */
    private TreeSet<String> constants(String prefix, String... classes) {
        TreeSet<String> found = new TreeSet<>();
        for (String name : classes) {
            try {
                for (Field field : Class.forName(root() + name).getFields()) {
                    if (field.getName().startsWith("OPTIONS_") && Modifier.isStatic(field.getModifiers())) {
                        found.add(prefix + field.get(null));
                    }
                }
            } catch (ReflectiveOperationException otherVersion) {
                continue;
            }
        }
        return found;
    }

    private String root() {
        return factory.getPackage().getName().replaceAll("\\.client$", "");
    }

    private boolean isAndes() {
        return root().equals("org.wso2.andes");
    }

    @Override
    void check() {
        made();
    }

    private javax.jms.ConnectionFactory made() {
        try {
            return (javax.jms.ConnectionFactory) factory.getConstructor(String.class).newInstance(url);
        } catch (InvocationTargetException error) {
            throw refused("connection " + url.replace(USER + ":" + USER, USER), error);
        } catch (ReflectiveOperationException error) {
            throw refused(factory.getName(), error);
        }
    }

    @Override
    Connection connect(Failovers failovers) throws JMSException {
        Connection connection = made().createConnection(secured.user, secured.password);
        try {
            listen(connection, failovers);
        } catch (ReflectiveOperationException error) {
            throw refused(factory.getName(), error);
        }
        return connection;
    }

    private void listen(Connection connection, Failovers failovers) throws ReflectiveOperationException {
        Class<?> listener = Class.forName(root() + ".jms.ConnectionListener");
        Class<?>[] implemented = {listener};
        Object ours = Proxy.newProxyInstance(listener.getClassLoader(), implemented, (self, method, args) -> {
            if (method.getName().equals("failoverComplete")) {
                failovers.happened();
            }
            return method.getReturnType() == boolean.class ? Boolean.TRUE : null; // go on with it
        });
        connection.getClass().getMethod("setConnectionListener", listener).invoke(connection, ours);
    }

    @Override
    Destination queue(javax.jms.Session session, String name) throws JMSException {
        String options = "?durable='true'&autodelete='false'&exclusive='false'";
        // andes takes a whole binding URL for the name of a queue.
        return session.createQueue(isAndes() ? name : "direct://amq.direct//" + name + options);
    }
}
