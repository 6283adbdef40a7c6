package brokerstorm.kafka;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;

/** The version that the client's jar says it is; its class for that has moved between releases. */
final class ClientVersion {
    private ClientVersion() {}

    static String text() {
        Properties found = new Properties();
        try (InputStream file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            if (file != null) {
                found.load(file);
            }
        } catch (IOException unreadable) {
            return "unknown";
        }
        return found.getProperty("version", "unknown");
    }
}
