package brokerstorm.kafka;

import brokerstorm.kit.TransactionalClient;
import java.time.Duration;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.KafkaProducer;

/** A producer with a transactional id: one sending thread's. */
class TransactionalProducer implements TransactionalClient {
    /** The client's documentation: a producer that was told so can only be closed. */
    private static final Set<String> FATAL = Set.of(
            "ProducerFencedException", "InvalidProducerEpochException", "OutOfOrderSequenceException",
            "AuthorizationException", "TransactionalIdAuthorizationException", "UnsupportedVersionException",
            "IllegalStateException");

    private final Supplier<KafkaProducer<byte[], byte[]>> make;
    private KafkaProducer<byte[], byte[]> producer;

    TransactionalProducer(Supplier<KafkaProducer<byte[], byte[]>> make) {
        this.make = make;
    }

    KafkaProducer<byte[], byte[]> producer() {
        return producer;
    }

    @Override
    public void init() {
        producer = make.get();
        producer.initTransactions();
    }

    @Override
    public void begin() {
        producer.beginTransaction();
    }

    @Override
    public void commit() {
        producer.commitTransaction();
    }

    @Override
    public void abort() {
        producer.abortTransaction();
    }

    @Override
    public void flush() {
        producer.flush();
    }

    /** KafkaProducer.commitTransaction: after a time-out the same call may be made again. */
    @Override
    public Reaction reaction(Exception error) {
        String name = error.getClass().getSimpleName();
        if (name.equals("TimeoutException") || name.equals("InterruptException")) {
            return Reaction.ASK_AGAIN;
        }
        boolean isFatal = FATAL.contains(name) || Outcomes.death(error) != null;
        return isFatal ? Reaction.GIVE_UP : Reaction.ABORT;
    }

    @Override
    public void close() {
        producer.close(Duration.ofSeconds(1));
    }
}
