package brokerstorm.pulsar;

import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.WorkerFailure;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.pulsar.client.api.DeadLetterPolicy;

/**
 * The scenario's options: names of fields of the client's configuration classes (ClientConfigurationData,
 * ProducerConfigurationData, ...), values as text.
 *
 * <p>Set through the client's own setters, so its own checks hold. Not by {@code loadConf}: that one drops names it
 * does not know without a word. Of a field that is an object, {@code field.property} is an option
 * ({@code deadLetterPolicy.maxRedeliverCount}), or a constant of its type ({@code batcherBuilder: KEY_BASED}).
 */
final class Options {
    private final Map<String, String> left;
    private final Set<String> known = new TreeSet<>();

    Options(Map<String, String> options) {
        left = new LinkedHashMap<>(options);
    }

    /** Takes the options whose names begin with a prefix out; without it. */
    Map<String, String> take(String prefix) {
        Map<String, String> found = new TreeMap<>();
        left.forEach((name, text) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), text);
            }
        });
        found.keySet().forEach(name -> left.remove(prefix + name));
        return found;
    }

    /**
     * Sets what this part of the configuration knows.
     *
     * @param ours fields that are the harness's to set: no options
     * @throws WorkerFailure a value the field cannot take
     */
    void apply(Object part, String... ours) {
        Set<String> refused = new LinkedHashSet<>(Arrays.asList(ours));
        for (Class<?> type = part.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                String name = field.getName();
                if (Modifier.isStatic(field.getModifiers()) || refused.contains(name)) {
                    continue;
                }
                known.add(name);
                String text = left.remove(name);
                if (text != null) {
                    set(part, field, value(field, text));
                }
            }
        }
        deadLetters(part);
    }

    /**
     * Refuses options that no part took.
     *
     * @throws WorkerFailure there is one; it names near ones
     */
    void refuseOthers(String version) {
        if (!left.isEmpty()) {
            String name = left.keySet().iterator().next();
            throw new WorkerFailure(
                    "pulsar-client-java " + version + " has no option " + name + DidYouMean.guess(name, known),
                    "options are fields of its ClientConfigurationData and of the configuration of the role");
        }
    }

    private static void set(Object part, Field field, Object value) {
        String setter = "set" + Character.toUpperCase(field.getName().charAt(0)) + field.getName().substring(1);
        try {
            for (Method method : part.getClass().getMethods()) {
                if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                    method.invoke(part, value);
                    return;
                }
            }
            field.setAccessible(true);
            field.set(part, value);
        } catch (InvocationTargetException error) {
            String why = String.valueOf(error.getCause().getMessage());
            throw new WorkerFailure("pulsar-client-java refused " + field.getName() + "=" + value + ": " + why);
        } catch (ReflectiveOperationException error) {
            throw new WorkerFailure("pulsar-client-java: " + field.getName() + " cannot be set: " + error);
        }
    }

    private static Object value(Field field, String text) {
        Class<?> type = field.getType();
        try {
            if (type == String.class) {
                return text;
            } else if (type == int.class) {
                return Integer.valueOf(text.trim());
            } else if (type == long.class || type == Long.class) {
                return Long.valueOf(text.trim());
            } else if (type == boolean.class || type == Boolean.class) {
                return flag(text.trim());
            } else if (type == Set.class) {
                return new LinkedHashSet<>(Arrays.asList(text.split("\\s*,\\s*")));
            }
            return type.getField(text.trim()).get(null); // a constant, of an enumeration or an interface
        } catch (IllegalArgumentException | ReflectiveOperationException error) {
            String wanted = type.isEnum() ? Arrays.toString(type.getEnumConstants()) : type.getSimpleName();
            throw new WorkerFailure(
                    "pulsar-client-java: " + field.getName() + "=" + text + " must be "
                            + (type.isEnum() ? "one of " : "of type ") + wanted);
        }
    }

    private static Boolean flag(String text) {
        if (!text.equals("true") && !text.equals("false")) {
            throw new IllegalArgumentException(text);
        }
        return Boolean.valueOf(text);
    }

    /** A dead-letter policy is made by a builder; its properties are options of their own. */
    private void deadLetters(Object part) {
        Field field;
        try {
            field = part.getClass().getDeclaredField("deadLetterPolicy");
        } catch (NoSuchFieldException notOfThisPart) {
            return;
        }
        known.addAll(Arrays.asList(
                "deadLetterPolicy.maxRedeliverCount", "deadLetterPolicy.deadLetterTopic",
                "deadLetterPolicy.retryLetterTopic"));
        String most = left.remove("deadLetterPolicy.maxRedeliverCount");
        if (most == null) {
            return;
        }
        DeadLetterPolicy.DeadLetterPolicyBuilder policy = DeadLetterPolicy.builder();
        try {
            policy.maxRedeliverCount(Integer.parseInt(most.trim()));
        } catch (NumberFormatException error) {
            throw new WorkerFailure("pulsar-client-java: deadLetterPolicy.maxRedeliverCount=" + most
                    + " must be a whole number");
        }
        policy.deadLetterTopic(left.remove("deadLetterPolicy.deadLetterTopic"));
        policy.retryLetterTopic(left.remove("deadLetterPolicy.retryLetterTopic"));
        set(part, field, policy.build());
    }
}
