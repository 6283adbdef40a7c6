package brokerstorm.rabbitmq;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.client.Address;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BlockedListener;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ListAddressResolver;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One connection at a time and one channel on it.
 *
 * <p>A lost connection is restored by the client ({@code automaticRecoveryEnabled}, its default) or, without that, by
 * the application. A channel that a broker closed by itself is always the application's to replace: the client recovers
 * connections only. The application tries four times a second.
 */
final class AmqpLink {
    private static final long PAUSE_NS = 250_000_000;

    /** The role that uses the channel. Called on threads of the client, too. */
    interface User {
        /** Makes a new channel ready. Throws the errors of the client. */
        void opened(Channel channel) throws IOException;

        /** The client restored the channel: it publishes and consumes again. */
        void recovered(Channel channel);

        /** The channel is gone, with everything that was not confirmed or acknowledged on it. */
        void lost(Channel channel, ShutdownSignalException cause);
    }

    private final Session session;
    private final User user;
    private final ConnectionFactory factory;
    private final List<Address> brokers = new ArrayList<>();
    private final AtomicLong reconnects = new AtomicLong();
    private final AtomicLong blocked = new AtomicLong();
    private volatile Connection connection;
    private volatile Channel channel;
    private volatile boolean isClosing;
    private volatile Exception why = new IOException("not connected yet");
    private long notBeforeNs = Long.MIN_VALUE;

    AmqpLink(Session session, Options options, User user) {
        Spec spec = session.spec;
        this.session = session;
        this.user = user;
        factory = options.factory();
        Secured.apply(factory, spec.options);
        String[] parts = spec.bootstrap.split("/", 2);
        factory.setVirtualHost((parts.length > 1 ? parts[1] : "").split("\\?", 2)[0]);
        for (String broker : parts[0].split(",")) {
            int colon = broker.lastIndexOf(':');
            int port = Integer.parseInt(broker.substring(colon + 1));
            brokers.add(new Address(broker.substring(0, colon), port));
        }
        // Clients of a cluster spread over its nodes; each tries the others when its own is gone.
        long number = spec.part.number("instance", spec.part.number("session", 0));
        Collections.rotate(brokers, -(int) (number % brokers.size()));
        Map<String, Object> properties = new HashMap<>(factory.getClientProperties());
        properties.put("instance", String.format("%s-%08x", spec.name, spec.runTag));
        properties.put("qpid.client_pid", String.valueOf(ProcessHandle.current().pid()));
        factory.setClientProperties(properties);
        session.optionsTaken();
    }

    /**
     * The open channel; a new one if it is the application's turn to make one.
     *
     * @throws IOException there is none now
     */
    Channel channel() throws IOException {
        Channel found = channel;
        if (found != null && found.isOpen()) {
            return found;
        }
        if (isClientsTurn(found) || System.nanoTime() < notBeforeNs) {
            throw reason();
        }
        try {
            return opened();
        } catch (IOException | TimeoutException | ShutdownSignalException error) {
            why = error;
            notBeforeNs = System.nanoTime() + PAUSE_NS;
            throw reason();
        }
    }

    /**
     * Whether the client restores the connection, or a channel that was lost with it. A second connection of the
     * application would then stay next to the restored one, and both would consume.
     *
     * <p>This is read from their states. A listener is called later than a closed channel can be seen.
     */
    private boolean isClientsTurn(Channel lost) {
        if (!factory.isAutomaticRecoveryEnabled()) {
            return false;
        }
        Connection last = connection;
        ShutdownSignalException cause = lost == null ? null : lost.getCloseReason();
        return last != null && !last.isOpen() || cause != null && cause.isHardError();
    }

    /** The first channel, at the start of a role. */
    void start() {
        try {
            opened();
        } catch (IOException | TimeoutException | ShutdownSignalException error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            throw new WorkerFailure(
                    cause.getClass().getSimpleName(),
                    "amqp-client refused to start: " + cause.getMessage(),
                    "check the options and the client's log (stderr.log)");
        }
    }

    private IOException reason() {
        Exception known = why;
        return known instanceof IOException ? (IOException) known : new IOException(ErrorTexts.text(known), known);
    }

    private Channel opened() throws IOException, TimeoutException {
        Connection on = connection;
        if (on == null || !on.isOpen()) {
            boolean isAgain = on != null;
            on = connect();
            if (isAgain) {
                reconnected();
            }
        }
        Channel made = on.createChannel();
        if (made == null) {
            throw new IOException("no channel is free on the connection");
        }
        made.addShutdownListener(cause -> ended(made, cause));
        if (made instanceof Recoverable) {
            ((Recoverable) made).addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable restored) {
                    reconnected();
                    user.recovered(made);
                }

                /** Only clients since 4.1 have it. */
                public void handleRecoveryStarted(Recoverable what) {}
            });
        }
        try {
            user.opened(made);
        } catch (IOException | ShutdownSignalException unusable) {
            quietly(made); // the client would restore it, and the consumers that it has, with the connection
            throw unusable;
        }
        channel = made;
        return made;
    }

    private Connection connect() throws IOException, TimeoutException {
        Connection made = factory.newConnection(new ListAddressResolver(brokers) {
            /** The client would try them in a random order. */
            public List<Address> maybeShuffle(List<Address> given) {
                return given;
            }
        });
        made.addBlockedListener(new BlockedListener() {
            @Override
            public void handleBlocked(String reason) {
                blocked.incrementAndGet();
                session.report.event("blocked", "the broker blocks the connection: " + reason);
            }

            @Override
            public void handleUnblocked() {
                session.report.event("unblocked", "the broker takes messages again");
            }
        });
        connection = made;
        return made;
    }

    private void reconnected() {
        reconnects.incrementAndGet();
        session.report.event("connect", "connected again");
    }

    private void ended(Channel of, ShutdownSignalException cause) {
        if (isClosing) {
            return;
        }
        why = cause;
        session.report.error("Shutdown", ErrorTexts.text(cause));
        session.report.event("disconnect", ErrorTexts.text(cause));
        user.lost(of, cause);
    }

    /** Closes the channel, so that the next question makes another one. */
    void renew() {
        Channel old = channel;
        channel = null;
        if (old != null) {
            quietly(old);
        }
    }

    private static void quietly(AutoCloseable what) {
        try {
            what.close();
        } catch (Exception alreadyGone) {
            System.err.println("closing: " + alreadyGone);
        }
    }

    long reconnects() {
        return reconnects.get();
    }

    long blocked() {
        return blocked.get();
    }

    /** Closes the connection; what is not acknowledged goes back. */
    void close() throws IOException {
        isClosing = true;
        Connection last = connection;
        if (last == null) {
            return;
        }
        try {
            last.close();
        } catch (AlreadyClosedException alreadyGone) {
            return; // the broker was faster
        }
    }
}
