package brokerstorm.rabbitmq;

import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.client.ConnectionFactory;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The scenario's options: properties of {@link ConnectionFactory} with a simple value, by the names of their setters
 * ({@code requestedHeartbeat}), and numbers and flags of the application itself.
 */
final class Options {
    /** The harness sets where the brokers are and who the client is. */
    private static final Set<String> RESERVED = Set.of("host", "port", "virtualHost", "username", "password", "uri");

    private final Map<String, String> own = new TreeMap<>();
    private final ConnectionFactory factory = new ConnectionFactory();

    /**
     * Sets every option.
     *
     * @param ofApplication names of the application's own options
     * @throws WorkerFailure an option that neither has, or a value that it cannot take
     */
    Options(Map<String, String> given, Set<String> ofApplication) {
        Map<String, Method> setters = setters();
        for (Map.Entry<String, String> option : given.entrySet()) {
            String name = option.getKey();
            String value = option.getValue().trim();
            if (name.startsWith(Secured.PREFIX)) {
                continue;
            } else if (ofApplication.contains(name)) {
                own.put(name, value);
            } else if (setters.containsKey(name)) {
                set(setters.get(name), name, value);
            } else {
                Set<String> known = new TreeSet<>(setters.keySet());
                known.addAll(ofApplication);
                throw new WorkerFailure(
                        "amqp-client " + RabbitWorker.version() + " has no option " + name
                                + DidYouMean.guess(name, known),
                        "options are properties of its ConnectionFactory; worker.toml lists the others");
            }
        }
    }

    ConnectionFactory factory() {
        return factory;
    }

    /** A number of the application's own; {@code otherwise} if it is not given. */
    long number(String name, long otherwise) {
        String text = own.get(name);
        if (text == null) {
            return otherwise;
        }
        if (!text.matches("[0-9]{1,9}")) {
            throw new WorkerFailure("amqp-client: " + name + "=" + text + " must be a whole number");
        }
        return Long.parseLong(text);
    }

    /** A text of the application's own; empty if it is not given. */
    String text(String name) {
        return own.getOrDefault(name, "");
    }

    /** A flag of the application's own; false if it is not given. */
    boolean flag(String name) {
        return own.containsKey(name) && truth(name, own.get(name));
    }

    private static Map<String, Method> setters() {
        Map<String, Method> found = new TreeMap<>();
        for (Method method : ConnectionFactory.class.getMethods()) {
            String name = method.getName();
            if (!name.startsWith("set") || method.getParameterCount() != 1) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            String property = Character.toLowerCase(name.charAt(3)) + name.substring(4);
            boolean isSimple = type == int.class || type == long.class || type == boolean.class || type == String.class;
            if (isSimple && !RESERVED.contains(property) && (type != int.class || !found.containsKey(property))) {
                found.put(property, method);
            }
        }
        return found;
    }

    private void set(Method setter, String name, String text) {
        try {
            setter.invoke(factory, value(setter.getParameterTypes()[0], name, text));
        } catch (InvocationTargetException refused) {
            String why = String.valueOf(refused.getCause().getMessage());
            throw new WorkerFailure("amqp-client refused " + name + "=" + text + ": " + why);
        } catch (IllegalAccessException hidden) {
            throw new WorkerFailure("amqp-client: " + name + " cannot be set: " + hidden.getMessage());
        }
    }

    private static Object value(Class<?> type, String name, String text) {
        if (type == String.class) {
            return text;
        }
        if (type == boolean.class) {
            return truth(name, text);
        }
        try {
            return type == int.class ? (Object) Integer.valueOf(text) : Long.valueOf(text);
        } catch (NumberFormatException noNumber) {
            throw new WorkerFailure("amqp-client: " + name + "=" + text + " must be a whole number");
        }
    }

    private static boolean truth(String name, String text) {
        if (!text.equals("true") && !text.equals("false")) {
            throw new WorkerFailure("amqp-client: " + name + "=" + text + " must be true or false");
        }
        return text.equals("true");
    }
}
