package brokerstorm.pulsar;

import brokerstorm.kit.Death;
import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Lane;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.Template;
import brokerstorm.kit.TransactionalClient;
import brokerstorm.pulsar.Producers.Target;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.impl.MessageImpl;

/** Producer role: one client, or with transactions one a sending thread. Answers come on the client's I/O threads. */
final class ProducerRole extends OpenLoop {
    /** Of the sending thread: where it sent since its last {@link #flush}. */
    private final ThreadLocal<Set<Target>> unflushed = ThreadLocal.withInitial(LinkedHashSet::new);
    private final Streams streams;
    private final AtomicLong reconnects = new AtomicLong();
    private final AtomicLong reconnectsWithPending = new AtomicLong();
    private final Producers shared;
    /** Those that were opened. */
    private final List<Producers> opened = new CopyOnWriteArrayList<>();
    /** Delay that each message asks for; 0 = none. */
    private final long deliverAfterMs;
    private Outcomes outcomes;

    ProducerRole(Session session) {
        super(session);
        deliverAfterMs = (long) (session.spec.part.decimal("deliver_after_s", 0) * 1000);
        streams = new Streams(session);
        shared = new Producers(session, lanes);
    }

    @Override
    protected boolean sendsFromThreads() {
        return true;
    }

    @Override
    protected void connect() throws Exception {
        boolean transacts = session.spec.part.has("transactions");
        shared.configure(waitsWhenFull, false);
        if (transacts) {
            shared.refuseTimeout();
        }
        session.optionsTaken();
        outcomes = new Outcomes(shared.isChunking);
        if (!transacts) {
            open(shared);
        }
        session.report.everyTick(this::look);
    }

    private void open(Producers producers) throws Exception {
        producers.open();
        opened.add(producers);
    }

    /** Made when it is initialised: by then this is constructed. */
    @Override
    protected TransactionalClient transactional(String id) {
        int thread = Integer.parseInt(id.substring(id.lastIndexOf('-') + 1));
        return new TransactionalProducers(control, () -> {
            int threads = (int) Math.min(session.spec.part.number("threads", 1), lanes.size());
            List<Lane> own = new ArrayList<>();
            for (int i = thread; i < lanes.size(); i += threads) {
                own.add(lanes.get(i));
            }
            Producers made = new Producers(session, own);
            made.configure(waitsWhenFull, true);
            open(made);
            return made;
        });
    }

    @Override
    protected void send(Send send, byte[] value) {
        TransactionalProducers own = (TransactionalProducers) send.client();
        Producers producers = own == null ? shared : own.producers();
        Target target = producers.of(send.lane);
        TypedMessageBuilder<byte[]> message =
                own == null ? target.producer.newMessage() : target.producer.newMessage(own.open());
        message.value(hasTemplate ? Template.body(value) : value);
        if (hasTemplate) {
            message.property(Template.HEADER, Base64.getEncoder().encodeToString(Template.identity(value)));
            send.headers().forEach(message::property);
        }
        if (deliverAfterMs > 0) {
            message.deliverAfter(deliverAfterMs, TimeUnit.MILLISECONDS);
        }
        if (!headers.isEmpty()) {
            message.properties(headers);
        }
        if (send.lane.key != null) {
            message.key(send.lane.key);
        }
        unflushed.get().add(target);
        target.open.incrementAndGet();
        producers.observer.sending.remove();
        CompletableFuture<MessageId> answer = message.sendAsync();
        Message<?> sent = producers.observer.sending.get();
        answer.whenComplete((id, error) -> {
            target.open.decrementAndGet();
            if (error == null) {
                send.ok(named(streams.place(target.address, id), target, sent));
            } else {
                Throwable cause = ErrorTexts.cause(error);
                int outcome = send.isInCall() ? outcomes.ofCall(cause) : outcomes.of(cause);
                send.failed(outcome, cause, named(new MessagePosition(), target, sent));
            }
        });
    }

    private static MessagePosition named(MessagePosition place, Target target, Message<?> sent) {
        if (sent != null) { // the first of a transaction wait until it knows their topic: it shows no id of these
            place.clientName = target.name;
            place.clientSeq = sent instanceof MessageImpl ? sequence((MessageImpl<?>) sent) : -1;
        }
        return place;
    }

    /** The client's sequence id; -1 when it gave none, or (2.7) is done with the message. */
    private static long sequence(MessageImpl<?> sent) {
        try {
            return sent.getSequenceId();
        } catch (RuntimeException gone) {
            return -1;
        }
    }

    @Override
    protected void flush() {
        unflushed.get().forEach(target -> target.producer.flushAsync());
        unflushed.get().clear();
    }

    @Override
    protected Death death(Throwable error) {
        return Outcomes.death(ErrorTexts.cause(error));
    }

    @Override
    protected void close() {
        Clients.close(shared.client); // those of threads are closed by themselves
    }

    @Override
    protected Map<String, Object> exposure() {
        return Map.of("reconnects", reconnects.get(), "reconnects_with_pending", reconnectsWithPending.get());
    }

    /** On the ticking thread: which producers lost their connection since the last look, and had sends open. */
    private void look() {
        int lost = 0;
        int pending = 0;
        int count = 0;
        for (Producers producers : opened) {
            for (Target target : producers.targets.values()) {
                count++;
                long at = target.producer.getLastDisconnectedTimestamp();
                if (at != target.disconnectedMs) {
                    target.disconnectedMs = at;
                    lost++;
                    pending += target.open.get() > 0 ? 1 : 0;
                }
            }
        }
        if (lost > 0) {
            reconnects.addAndGet(lost);
            reconnectsWithPending.addAndGet(pending);
            String text = lost + " of " + count + " producers lost their connection, " + pending
                    + " with sends open";
            session.report.event("disconnect", text);
        }
    }
}
