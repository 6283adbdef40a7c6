package brokerstorm.jms;

import brokerstorm.kit.WorkerFailure;
import java.util.Map;
import java.util.Set;
import javax.jms.DeliveryMode;

/** Options of the application itself, in the words of JMS. */
final class Options {
    /** How a message is sent: {@code PERSISTENT} or {@code NON_PERSISTENT}. */
    static final String DELIVERY_MODE = "deliveryMode";
    /** Messages that a producer commits together; 0 = its session is not transacted. */
    static final String TRANSACTED = "transacted";
    /** {@code true}: queues and virtual hosts have the addresses that RabbitMQ gives them in AMQP 1.0. */
    static final String RABBITMQ_ADDRESSES = "rabbitmqAddresses";
    static final Set<String> OURS = Set.of(DELIVERY_MODE, TRANSACTED, RABBITMQ_ADDRESSES);

    private Options() {}

    static int deliveryMode(Map<String, String> options) {
        String text = options.getOrDefault(DELIVERY_MODE, "PERSISTENT");
        switch (text.toUpperCase(java.util.Locale.ROOT)) {
            case "PERSISTENT":
            case "2":
                return DeliveryMode.PERSISTENT;
            case "NON_PERSISTENT":
            case "1":
                return DeliveryMode.NON_PERSISTENT;
            default:
                throw new WorkerFailure(DELIVERY_MODE + "=" + text + ": must be PERSISTENT or NON_PERSISTENT");
        }
    }

    static int transacted(Map<String, String> options) {
        String text = options.getOrDefault(TRANSACTED, "0").trim();
        if (!text.matches("[0-9]{1,6}")) {
            throw new WorkerFailure(TRANSACTED + "=" + text + ": must be a number of messages, 0 = no transactions");
        }
        return Integer.parseInt(text);
    }
}
