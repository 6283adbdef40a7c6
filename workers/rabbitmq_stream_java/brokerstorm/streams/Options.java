package brokerstorm.streams;

import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.stream.BackOffDelayPolicy;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The scenario's options: methods of the client's builders with one simple value ({@code confirmTimeout}), and options
 * of the application itself. Times are milliseconds.
 */
final class Options {
    /** The harness sets where the brokers are, who the client is and which stream it uses. */
    private static final Set<String> RESERVED = Set.of(
            "host", "port", "uri", "id", "virtualHost", "username", "password", "stream", "superStream", "name");

    private final Map<String, String> own = new TreeMap<>();
    private final Map<String, String> ofBuilders = new TreeMap<>();

    /**
     * @param ofApplication names of the application's own options
     * @param builders the interfaces that the role sets options of
     * @throws WorkerFailure an option that none of them has
     */
    Options(Map<String, String> given, Set<String> ofApplication, Class<?>... builders) {
        Set<String> known = new TreeSet<>(ofApplication);
        for (Class<?> builder : builders) {
            known.addAll(methods(builder).keySet());
        }
        for (Map.Entry<String, String> option : given.entrySet()) {
            String name = option.getKey();
            if (name.startsWith(Streams.SECURE)) {
                continue;
            }
            if (!known.contains(name)) {
                throw new WorkerFailure(
                        "stream-client " + StreamWorker.version() + " has no option " + name
                                + DidYouMean.guess(name, known),
                        "options are methods of its builders; worker.toml lists the others");
            }
            (ofApplication.contains(name) ? own : ofBuilders).put(name, option.getValue().trim());
        }
    }

    /** A text of the application's own; empty if it is not given. */
    String text(String name) {
        return own.getOrDefault(name, "");
    }

    /** A flag of the application's own; false if it is not given. */
    boolean flag(String name) {
        return own.containsKey(name) && truth(name, own.get(name));
    }

    /** Sets the options that a builder has. */
    <B> B applied(Class<B> type, B builder) {
        Map<String, Method> methods = methods(type);
        for (Map.Entry<String, String> option : ofBuilders.entrySet()) {
            Method method = methods.get(option.getKey());
            if (method != null) {
                set(builder, method, option.getKey(), option.getValue());
            }
        }
        return builder;
    }

    private static Map<String, Method> methods(Class<?> builder) {
        Set<Class<?>> simple =
                Set.of(int.class, boolean.class, String.class, Duration.class, BackOffDelayPolicy.class);
        Map<String, Method> found = new TreeMap<>();
        for (Method method : builder.getMethods()) {
            boolean isOption = method.getParameterCount() == 1
                    && simple.contains(method.getParameterTypes()[0])
                    && method.getReturnType().isAssignableFrom(builder);
            if (isOption && !RESERVED.contains(method.getName())) {
                found.put(method.getName(), method);
            }
        }
        return found;
    }

    private static void set(Object builder, Method method, String name, String text) {
        try {
            method.invoke(builder, value(method.getParameterTypes()[0], name, text));
        } catch (InvocationTargetException refused) {
            String why = String.valueOf(refused.getCause().getMessage());
            throw new WorkerFailure("stream-client refused " + name + "=" + text + ": " + why);
        } catch (IllegalAccessException hidden) {
            throw new WorkerFailure("stream-client: " + name + " cannot be set: " + hidden.getMessage());
        }
    }

    private static Object value(Class<?> type, String name, String text) {
        if (type == String.class) {
            return text;
        }
        if (type == boolean.class) {
            return truth(name, text);
        }
        if (!text.matches("[0-9]{1,9}")) {
            throw new WorkerFailure("stream-client: " + name + "=" + text + " must be a whole number");
        }
        int number = Integer.parseInt(text);
        if (type == int.class) {
            return number;
        }
        Duration time = Duration.ofMillis(number);
        return type == Duration.class ? time : BackOffDelayPolicy.fixed(time);
    }

    private static boolean truth(String name, String text) {
        if (!text.equals("true") && !text.equals("false")) {
            throw new WorkerFailure("stream-client: " + name + "=" + text + " must be true or false");
        }
        return text.equals("true");
    }
}
