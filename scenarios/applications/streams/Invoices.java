import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** An application under test: Kafka Streams reads orders and writes an invoice for each. */
public final class Invoices {
    private static final byte[] PAID = " paid".getBytes(StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("GROUP"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BOOTSTRAP"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, System.getenv("GUARANTEE"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getenv("STATE"));
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(System.getenv("IN"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .mapValues(Invoices::invoice)
            .to(System.getenv("OUT"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch over = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("started");
            }
            if (now == KafkaStreams.State.ERROR) {
                over.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(8))));
        streams.start();
        over.await();
        System.exit(1);
    }

    private static byte[] invoice(byte[] order) {
        byte[] made = new byte[order.length + PAID.length];
        System.arraycopy(order, 0, made, 0, order.length);
        System.arraycopy(PAID, 0, made, order.length, PAID.length);
        return made;
    }
}
