package brokerstorm.pulsar;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.WorkerFailure;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;

/** Acknowledges messages that the application has worked on, alone or with all before, or refuses them (nack). */
final class Acknowledger {
    private static final long LAST_ACKS_NS = TimeUnit.SECONDS.toNanos(3);
    private static final long GLANCE_NS = 5_000_000;

    private final Session session;
    private final Journal journal;
    private final String how;
    private final long nackEvery;
    private final long cumulativeNs;
    private final AtomicInteger open = new AtomicInteger();
    private final Map<Integer, Last> lasts = new LinkedHashMap<>();
    private long nextCumulativeNs;

    /** The newest message of a stream that was not acknowledged yet. */
    private static final class Last {
        final Consumer<byte[]> consumer;
        final Message<byte[]> message;
        final MessagePosition place;

        Last(Consumer<byte[]> consumer, Message<byte[]> message, MessagePosition place) {
            this.consumer = consumer;
            this.message = message;
            this.place = place;
        }
    }

    Acknowledger(Session session, Journal journal) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.journal = journal;
        this.how = part.text("settle", "auto");
        this.nackEvery = part.number("nack_every", 0);
        this.cumulativeNs = (long) (part.decimal("commit_every_s", 1) * 1e9);
        if (!how.matches("auto|ack|cumulative|none")) {
            throw new WorkerFailure("settle '" + how + "': pulsar-client-java has auto, ack, cumulative, none");
        }
    }

    /** @param number of the hand-over in the session, from 1 */
    void settle(Consumer<byte[]> consumer, Message<byte[]> message, MessagePosition place, long number) {
        if (nackEvery > 0 && number % nackEvery == 0) {
            journal.note(Layout.NACK, place);
            consumer.negativeAcknowledge(message);
        } else if (how.equals("auto") || how.equals("ack")) {
            journal.note(Layout.ACK_CALLED, place);
            confirmed(consumer.acknowledgeAsync(message), place);
        } else if (how.equals("cumulative")) {
            cumulative(new Last(consumer, message, place));
        }
    }

    private synchronized void cumulative(Last last) {
        lasts.put(last.place.stream, last);
        acknowledgeWhenDue();
    }

    /** Called regularly: the newest messages are acknowledged in time also when no further one arrives. */
    synchronized void acknowledgeWhenDue() {
        if (!lasts.isEmpty() && System.nanoTime() >= nextCumulativeNs) {
            acknowledgeAll();
            nextCumulativeNs = System.nanoTime() + cumulativeNs;
        }
    }

    /** Leaves what was not acknowledged yet: after a seek, such an acknowledgement would undo it. */
    synchronized void forget() {
        lasts.clear();
    }

    private void acknowledgeAll() {
        for (Last last : lasts.values()) {
            journal.note(Layout.ACK_CALLED, last.place);
            confirmed(last.consumer.acknowledgeCumulativeAsync(last.message), last.place);
        }
        lasts.clear();
    }

    private void confirmed(CompletableFuture<Void> answer, MessagePosition place) {
        open.incrementAndGet();
        answer.whenComplete((nothing, error) -> {
            open.decrementAndGet();
            if (error == null) {
                journal.note(Layout.ACK_CONFIRMED, place);
            } else {
                Throwable cause = ErrorTexts.cause(error);
                session.report.error(cause.getClass().getSimpleName(), "ack: " + ErrorTexts.text(cause));
            }
        });
    }

    /** Acknowledges what is left, and gives the answers a moment. */
    void finish() {
        synchronized (this) {
            acknowledgeAll();
        }
        long end = System.nanoTime() + LAST_ACKS_NS;
        while (open.get() > 0 && System.nanoTime() < end) {
            LockSupport.parkNanos(GLANCE_NS);
        }
    }
}
