package brokerstorm.pulsar;

import brokerstorm.kit.Control;
import brokerstorm.kit.Death;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.ReaderBuilderImpl;

/** Consumer role without a subscription: a reader of each partition, from the first message on. */
final class ReaderRole {
    private static final int READ_MS = 50;
    /** Fields that are no options. */
    private static final String[] OURS = {
        "topicNames", "topicName", "startMessageId", "readerListener", "readerName", "subscriptionName"
    };

    private final Session session;
    private final Control control;
    private final Journal journal;
    private final Streams streams;
    private final long workNs;

    ReaderRole(Session session) {
        this.session = session;
        this.control = session.control;
        this.journal = new Journal(session);
        this.streams = new Streams(session);
        this.workNs = (long) (session.spec.part.decimal("work_s", 0) * 1e9);
    }

    void run() throws Exception {
        session.report.counts(journal::counts);
        Options options = new Options(session.spec.options);
        PulsarClient client = Clients.make(session, options);
        List<ReaderBuilderImpl<byte[]>> builders = new ArrayList<>();
        for (String address : addresses()) {
            ReaderBuilderImpl<byte[]> builder = (ReaderBuilderImpl<byte[]>) client.newReader(Schema.BYTES);
            Options own = new Options(session.spec.options); // each configuration takes them
            own.apply(builder.getConf(), OURS);
            builder.topic(address).startMessageId(MessageId.earliest).readerName(session.spec.name);
            builders.add(builder);
        }
        options.apply(((ReaderBuilderImpl<byte[]>) client.newReader(Schema.BYTES)).getConf(), OURS);
        Clients.refuseOthers(options);
        session.optionsTaken();
        List<Thread> threads = new ArrayList<>();
        for (ReaderBuilderImpl<byte[]> builder : builders) {
            Reader<byte[]> reader = Clients.result(builder.createAsync(), "reader");
            threads.add(new Thread(() -> read(reader), "reader"));
        }
        MessagePosition place = new MessagePosition(0, -1);
        place.ledger = -1;
        journal.nextEpoch();
        journal.note(Layout.ASSIGN, place);
        session.ready();
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        Clients.close(client);
    }

    /** Partitions of the topics, as a client addresses each of them. */
    private List<String> addresses() {
        List<String> found = new ArrayList<>();
        for (String name : session.spec.part.texts("topics")) {
            Spec.Topic topic = session.spec.topic(name);
            for (int partition = 0; partition < topic.partitions; partition++) {
                found.add(topic.partitions > 1 ? topic.address + "-partition-" + partition : topic.address);
            }
        }
        return found;
    }

    private void read(Reader<byte[]> reader) {
        while (!control.isOver()) {
            if (session.report.hasClientDied()) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(READ_MS));
                continue;
            }
            try {
                Message<byte[]> message = reader.readNext(READ_MS, TimeUnit.MILLISECONDS);
                if (message != null) {
                    taken(message);
                }
            } catch (PulsarClientException error) {
                Death death = Outcomes.death(error);
                if (death != null) {
                    session.report.clientDied(error, death);
                } else {
                    session.report.error(error.getClass().getSimpleName(), "readNext: " + error.getMessage());
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(READ_MS));
                }
            }
        }
    }

    private void taken(Message<byte[]> message) {
        MessagePosition place = streams.place(message.getTopicName(), message.getMessageId());
        journal.deliver(place, Streams.payload(message), message.getRedeliveryCount());
        for (long end = System.nanoTime() + workNs, left = workNs; left > 0 && !control.isStopped(); ) {
            LockSupport.parkNanos(left);
            left = end - System.nanoTime();
        }
    }
}
