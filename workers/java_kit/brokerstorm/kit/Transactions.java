package brokerstorm.kit;

import java.util.ArrayList;
import java.util.List;

/**
 * The transactions of one sending thread, one after the other: their journal, and the sends of the one that is open.
 *
 * <p>Every intent is written before the client is called, and every answer after it. The rows of sends get their
 * outcome when their transaction has one, which is the same for all of them.
 */
final class Transactions {
    private static final int CAPACITY = 1024;
    private static final long AGAIN_MS = 100;

    final TransactionalClient client;
    /** Of the open one; 0 = none is open. */
    int number;

    private final Sender sender;
    private final Session session;
    private final Control control;
    private final long messages;
    private final long everyNs;
    private final long abortEvery;
    private final int thread;
    private final int threads;
    private final Segments segments;
    private final List<Send> sends = new ArrayList<>();
    private long count;
    private long sent;
    private long beganNs;
    private int asked;
    /** Of the messages of the transaction that was just ended. */
    private int outcome;
    private boolean isDead;
    /** Why brokers did not take a message of the open one. */
    private volatile Throwable refused;

    Transactions(Sender sender, OpenLoop loop, int thread, int threads, Segments segments) {
        Spec.Section own = loop.session.spec.part.section("transactions");
        this.sender = sender;
        this.session = loop.session;
        this.control = loop.control;
        this.messages = own.number("messages");
        this.everyNs = (long) (own.decimal("every_s") * 1e9);
        this.abortEvery = own.number("abort_every");
        this.thread = thread;
        this.threads = threads;
        this.segments = segments;
        this.client = loop.transactional(own.text("id") + "-" + thread);
    }

    static Segments segments(Session session) {
        int instance = (int) session.spec.part.number("instance");
        return new Segments(
                session.spec.folder, Layout.Table.TRANSACTIONS, instance, session.spec.runTag, 0, CAPACITY);
    }

    /** When the open one is to end by time. */
    long endNs() {
        return number != 0 && everyNs > 0 ? beganNs + everyNs : Long.MAX_VALUE;
    }

    /** A message is about to be offered. */
    void beforeSend() {
        if (number == 0 && !isDead) {
            begin();
        }
    }

    /** It was offered. */
    void offered(Send send) {
        if (number != 0) {
            sent++;
            if (send.transaction != 0) {
                sends.add(send);
            }
        }
    }

    void endIfDue() {
        if (isDue()) {
            end();
        }
    }

    boolean isDue() {
        return number != 0 && ((messages > 0 && sent >= messages) || System.nanoTime() >= endNs());
    }

    void refused(Throwable error) {
        refused = error;
    }

    private void begin() {
        segments.next();
        number = (int) (count++ * threads + thread + 1);
        beganNs = System.nanoTime();
        sent = 0;
        asked = 0;
        refused = null;
        Rows.begun(segments.rows(), segments.at(), number, thread, beganNs);
        Exception error = untilAnswered(client::begin);
        if (error != null) {
            answered(Layout.FAIL, errorId(error));
        }
        sender.blocked(System.nanoTime() - beganNs);
    }

    /** Ends the open one as the application wants it; counts as blocked. */
    void end() {
        end(wantsCommit());
    }

    /** The same, as is said; whether it is committed. */
    boolean end(boolean commits) {
        if (number == 0) {
            return false;
        }
        long began = System.nanoTime();
        Throwable why = commits ? committed() : aborted();
        int error = why == null ? 0 : errorId(why);
        answered(outcome == Layout.FAIL ? Layout.ABORTED : outcome, error);
        sender.completed(sends, outcome, error);
        sends.clear();
        sender.blocked(System.nanoTime() - began);
        return outcome == Layout.OK;
    }

    /** Whether the application wants the open one to be committed. */
    boolean wantsCommit() {
        return abortEvery == 0 || count % abortEvery != 0;
    }

    private Throwable aborted() {
        try {
            client.flush(); // an abort of what was never stored would hide nothing
        } catch (Exception error) {
            note(error);
        }
        Throwable error = abort();
        outcome = error == null ? Layout.ABORTED : Layout.INFO;
        return error;
    }

    private Throwable committed() {
        Exception error = untilAnswered(client::beforeCommit);
        if (error == null) {
            ask(Layout.COMMIT_ASKED);
            error = untilAnswered(client::commit);
        }
        outcome = error == null ? Layout.OK : Layout.INFO;
        if (error == null || client.reaction(error) != TransactionalClient.Reaction.ABORT) {
            return error;
        }
        Throwable why = refused != null ? refused : error;
        if (abort() == null) {
            outcome = Layout.FAIL;
            return why;
        }
        return error;
    }

    private Throwable abort() {
        ask(Layout.ABORT_ASKED);
        return untilAnswered(client::abort);
    }

    private interface Call {
        void run() throws Exception;
    }

    private Exception untilAnswered(Call call) {
        while (true) {
            try {
                call.run();
                return null;
            } catch (Exception error) {
                note(error);
                boolean isAskedAgain = client.reaction(error) == TransactionalClient.Reaction.ASK_AGAIN;
                if (!isAskedAgain || control.isOver()) {
                    return error;
                }
                try {
                    Thread.sleep(AGAIN_MS);
                } catch (InterruptedException ended) {
                    return error;
                }
            }
        }
    }

    private void note(Exception error) {
        session.report.error(error.getClass().getSimpleName(), ErrorTexts.text(error));
        Death death = sender.death(error);
        if (death != null) {
            isDead = true;
            session.report.clientDied(error, death);
        }
    }

    private int errorId(Throwable error) {
        return session.names.id("error", ErrorTexts.text(error));
    }

    private void ask(int what) {
        if (asked == 0) {
            Rows.askedAt(segments.rows(), segments.at(), System.nanoTime());
        }
        asked |= what;
        Rows.asked(segments.rows(), segments.at(), asked);
    }

    private void answered(int outcome, int error) {
        Rows.transactionDone(segments.rows(), segments.at(), System.nanoTime(), error, outcome);
        number = 0;
    }
}
