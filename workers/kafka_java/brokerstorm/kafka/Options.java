package brokerstorm.kafka;

import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.KafkaException;

/** The scenario's options, under the client's own names. The client only warns of one it does not know; we refuse. */
final class Options {
    private static final String HINT = "options are the Java client's own names, see ProducerConfig, ConsumerConfig";

    /** Options of this worker's own: the client has another class for members of a share group. */
    static final String GROUP_TYPE = "group.type";
    /** Of a member of a share group: every n-th message is rejected, so that nobody is given it again; 0 = none. */
    static final String REJECT_EVERY = "reject.every";

    private Options() {}

    /**
     * Our defaults and the user's options, then what the harness decides.
     *
     * @throws WorkerFailure options this client does not have, all of them; names near ones
     */
    static Properties of(Session session, Set<String> known) {
        Properties found = new Properties();
        found.put("client.id", session.spec.name);
        List<String> unknown = new ArrayList<>();
        session.spec.options.forEach((name, value) -> {
            if (!known.contains(name)) {
                unknown.add(name + DidYouMean.guess(name, known));
            }
            found.put(name, value);
        });
        if (!unknown.isEmpty()) {
            throw new WorkerFailure(
                    "kafka-clients " + ClientVersion.text() + " has no option " + String.join("; no option ", unknown),
                    HINT);
        }
        found.put("bootstrap.servers", session.spec.bootstrap);
        Object tokenUrl = found.get("sasl.oauthbearer.token.endpoint.url");
        if (tokenUrl != null) { // since 3.9.1 the client asks no address that is not on this list
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", String.valueOf(tokenUrl));
        }
        return found;
    }

    /** Of a consumer, by the names that Kafka has for them and further ones of this worker's own. */
    static Properties ofConsumer(Session session, Collection<String> further) {
        Set<String> known = new HashSet<>(ConsumerConfig.configNames());
        known.add(GROUP_TYPE);
        known.addAll(further);
        Properties found = of(session, known);
        found.remove(GROUP_TYPE);
        return found;
    }

    /** Constructs a client; a value it does not take ends the worker with the client's own words. */
    static <T> T make(Supplier<T> client) {
        try {
            return client.get();
        } catch (KafkaException error) {
            List<String> said = new ArrayList<>();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                String text = String.valueOf(cause.getMessage()).split("\\R", 2)[0]; // some hold a stack trace
                if (said.isEmpty() || !said.get(said.size() - 1).contains(text)) { // some repeat their cause
                    said.add(text);
                }
            }
            // The outermost says only that there is no client.
            List<String> why = said.size() > 1 ? said.subList(1, said.size()) : said;
            throw new WorkerFailure("kafka-clients refused its options: " + String.join(": ", why), HINT);
        }
    }
}
