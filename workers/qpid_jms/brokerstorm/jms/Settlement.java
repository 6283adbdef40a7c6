package brokerstorm.jms;

import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import brokerstorm.kit.Spec;
import brokerstorm.kit.WorkerFailure;
import javax.jms.JMSException;
import javax.jms.Message;

/**
 * Settles what the application was given, journaled just before the call and when it has returned.
 *
 * <p>A session settles all it was given since the last time (JMS 1.1, 4.4.7 and 4.4.11): these rows have no stream.
 * Called by the thread that the session belongs to.
 */
final class Settlement {
    private final Journal journal;
    private final String settle;
    private final int perTransaction;
    private final long rollbackEvery;
    private final long nackEvery;
    private volatile long transaction = 1;
    private volatile int open;
    private Message last;

    Settlement(Session worker, Journal journal) {
        Spec.Section part = worker.spec.part;
        this.journal = journal;
        settle = part.text("settle", "auto");
        perTransaction = (int) Math.max(1, part.number("per_transaction", 1));
        rollbackEvery = part.number("rollback_every", 0);
        nackEvery = part.number("nack_every", 0);
        acknowledgeMode();
    }

    boolean isTransacted() {
        return settle.equals("transacted");
    }

    int acknowledgeMode() {
        switch (settle) {
            case "transacted":
                return javax.jms.Session.SESSION_TRANSACTED;
            case "ack":
            case "none":
                return javax.jms.Session.CLIENT_ACKNOWLEDGE;
            case "auto":
                return javax.jms.Session.AUTO_ACKNOWLEDGE;
            default:
                throw new WorkerFailure("settle '" + settle + "': JMS has auto, ack, transacted and none");
        }
    }

    /** Ordinal of the transaction that a message given now belongs to; 0 without transactions. */
    long transaction() {
        return isTransacted() ? transaction : 0;
    }

    boolean isOpen() {
        return open > 0;
    }

    /** After a new session: what the old one had is not its own. */
    void startOver() {
        if (open > 0) {
            transaction++;
        }
        open = 0;
        last = null;
    }

    /** @param number of the delivery in the session, from 1 */
    void settle(javax.jms.Session session, Message message, long number) throws JMSException {
        if (settle.equals("auto") || settle.equals("none")) {
            return;
        }
        open++;
        last = message;
        if (isTransacted()) {
            if (open >= perTransaction) {
                end(session, rollbackEvery > 0 && transaction % rollbackEvery == 0);
            }
        } else if (nackEvery > 0 && number % nackEvery == 0) {
            recover(session);
        } else if (open >= perTransaction) {
            acknowledge();
        }
    }

    /** Settles what is open, however little. */
    void settleRest(javax.jms.Session session) throws JMSException {
        if (open == 0) {
            return;
        }
        if (isTransacted()) {
            end(session, false);
        } else {
            acknowledge();
        }
    }

    private void end(javax.jms.Session session, boolean rollsBack) throws JMSException {
        long ended = transaction;
        note(rollsBack ? Layout.ROLLBACK_BEGIN : Layout.COMMIT_CALLED, ended);
        if (rollsBack) {
            session.rollback();
        } else {
            session.commit();
        }
        open = 0;
        transaction = ended + 1;
        note(rollsBack ? Layout.ROLLBACK_END : Layout.COMMIT, ended);
    }

    private void acknowledge() throws JMSException {
        note(Layout.ACK_CALLED, 0);
        last.acknowledge();
        open = 0;
        note(Layout.ACK_CONFIRMED, 0);
    }

    private void recover(javax.jms.Session session) throws JMSException {
        open = 0;
        note(Layout.RECOVER, 0);
        session.recover();
    }

    private void note(int kind, long ended) {
        journal.note(kind, new MessagePosition(), ended);
    }
}
