package brokerstorm.jms;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Session;
import java.util.concurrent.atomic.AtomicLong;
import javax.jms.Connection;
import javax.jms.JMSException;

/**
 * A connection and a session on it, and how an application comes to new ones when they are broken: a new session on
 * the same connection, if the client still has one, else a new connection; one try a call.
 */
final class JmsConnection {
    private static final long PAUSE_NS = 250_000_000;

    private final Session worker;
    private final Library library;
    private final boolean isTransacted;
    private final int acknowledgeMode;
    private final Runnable onReconnect;
    private final AtomicLong reconnects = new AtomicLong();
    private volatile Connection connection;
    private volatile javax.jms.Session session;
    private volatile JMSException lastError;
    /** The client said that the connection is gone for good; on a thread of the client. */
    private volatile JMSException loss;
    private long notBeforeNs = Long.MIN_VALUE;

    /** @param onReconnect called, on any thread, when the client or this made a lost connection again */
    JmsConnection(Session worker, boolean isTransacted, int acknowledgeMode, Runnable onReconnect) {
        this.worker = worker;
        this.library = Library.of(worker);
        library.check();
        worker.optionsTaken();
        this.isTransacted = isTransacted;
        this.acknowledgeMode = acknowledgeMode;
        this.onReconnect = onReconnect;
    }

    Library library() {
        return library;
    }

    Connection connection() {
        return connection;
    }

    long reconnects() {
        return reconnects.get();
    }

    boolean isOpen() {
        return session != null && loss == null;
    }

    /** Why the client gave its connection up; null while it has not. */
    JMSException loss() {
        return loss;
    }

    /**
     * The session that there is: what belongs to a session that is lost must not be settled with another one.
     *
     * @throws JMSException it is lost
     */
    javax.jms.Session current() throws JMSException {
        javax.jms.Session found = session;
        JMSException lost = loss;
        if (found == null || lost != null) {
            throw lost != null ? lost : lastError;
        }
        return found;
    }

    /**
     * The session, made when there is none.
     *
     * @throws JMSException it cannot be made now; until a pause is over, the last reason without another try
     */
    javax.jms.Session session() throws JMSException {
        if (loss != null) {
            lastError = loss;
            drop();
        }
        if (session == null) {
            if (System.nanoTime() < notBeforeNs) {
                throw lastError;
            }
            try {
                open();
            } catch (JMSException error) {
                drop();
                lastError = error;
                notBeforeNs = System.nanoTime() + PAUSE_NS;
                throw error;
            }
        }
        return session;
    }

    private void open() throws JMSException {
        if (connection != null) {
            try {
                session = connection.createSession(isTransacted, acknowledgeMode);
                return;
            } catch (JMSException closed) {
                drop();
            }
        }
        boolean isAgain = lastError != null;
        Connection made = library.connect(this::reconnected);
        made.setExceptionListener(error -> lost(made, error));
        connection = made;
        session = made.createSession(isTransacted, acknowledgeMode);
        made.start();
        if (isAgain) {
            reconnected();
        }
    }

    private void lost(Connection from, JMSException error) {
        worker.report.event("disconnect", ErrorTexts.text(error));
        if (from == connection) {
            loss = error;
        }
    }

    private void reconnected() {
        reconnects.incrementAndGet();
        worker.report.event("connect", "connected again");
        onReconnect.run();
    }

    /** The session is of no use any more. */
    void broken(JMSException error) {
        lastError = error;
        worker.report.error(error.getClass().getSimpleName(), ErrorTexts.text(error));
        javax.jms.Session old = session;
        session = null;
        quietly(() -> old.close());
    }

    private void drop() {
        Connection old = connection;
        connection = null;
        session = null;
        loss = null;
        if (old != null) {
            quietly(() -> old.close());
        }
    }

    /** Closes the connection; what is not committed goes back. */
    void close() throws JMSException {
        if (connection != null) {
            connection.close();
        }
    }

    private interface Closing {
        void run() throws JMSException;
    }

    /** Beside the worker's thread: closing something broken may wait for an answer that does not come. */
    private static void quietly(Closing closing) {
        Thread thread = new Thread(
                () -> {
                    try {
                        closing.run();
                    } catch (JMSException | RuntimeException alreadyGone) {
                        System.err.println("closing: " + alreadyGone);
                    }
                },
                "closing");
        thread.setDaemon(true);
        thread.start();
    }
}
