package brokerstorm.kit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.ToLongFunction;

/**
 * The producer role but for the client: its life and its numbers; schedule and rows are those of its {@link Sender}s.
 *
 * <p>A worker derives from it and adds the client. The client is never helped: nothing is sent twice (unless the
 * application does that: {@code results: resent}), nothing is reordered, every result is written down. One thread
 * sends, or, with {@code threads}, several that share the lanes; answers may come on any.
 */
public abstract class OpenLoop {
    static final long SLACK_NS = 2_000_000;
    /** How long calls under way are waited for when the capture cannot go on. */
    private static final long SETTLE_NS = 10_000_000_000L;
    /** How long several sending threads get to notice the end. */
    private static final long END_NS = 2_000_000_000L;

    protected final Session session;
    protected final Control control;
    protected final List<Lane> lanes;
    /** A full queue: wait for room as a patient application, or count it as failed. */
    protected final boolean waitsWhenFull;
    /** Value of each header of a message by its name. */
    protected final Map<String, String> headers;
    /** Payloads are sent as a body, with their identity in a header ({@link Template}). */
    protected final boolean hasTemplate;

    final boolean capture;
    final boolean resends;
    /** {@code calls: sync}: a call returns before the next begins. */
    final boolean isSync;
    volatile WorkerFailure broken;
    /** A bug in one of several threads. */
    private volatile Throwable crashed;
    private final List<Sender> senders = new ArrayList<>();

    protected OpenLoop(Session session) {
        Spec.Section part = session.spec.part;
        this.session = session;
        this.control = session.control;
        this.lanes = session.spec.lanes();
        this.waitsWhenFull = part.text("when_full").equals("wait");
        this.headers = part.textPairs("headers");
        this.hasTemplate = part.has("payload_template");
        this.capture = part.flag("capture", true);
        this.resends = part.text("results", "checked").equals("resent");
        this.isSync = isSync(part.text("calls", "async"));
        Segments segments = new Segments(
                session.spec.folder, Layout.Table.SENDS, (int) part.number("instance"), session.spec.runTag, 0);
        int threads = (int) Math.min(part.number("threads", 1), lanes.size());
        if (threads > 1 && !sendsFromThreads()) {
            throw new WorkerFailure("threads " + threads + ": this worker sends from one");
        }
        Segments transactions = part.has("transactions") ? Transactions.segments(session) : null;
        for (int i = 0; i < threads; i++) {
            Segments own = transactions == null ? null : transactions.ofAnotherThread();
            senders.add(new Sender(this, i, threads, segments.ofAnotherThread(), own));
        }
    }

    private static boolean isSync(String calls) {
        if (!calls.equals("async") && !calls.equals("sync")) {
            throw new WorkerFailure("calls '" + calls + "': this worker has async and sync");
        }
        return calls.equals("sync");
    }

    // -- what the client adds

    /** Whether {@link #send} may be called from several threads. */
    protected boolean sendsFromThreads() {
        return false;
    }

    /** Returns when the client can send to every lane. */
    protected abstract void connect() throws Exception;

    /** Calls the client once. Its answer goes to the {@code send}; an exception means that it took nothing. */
    protected abstract void send(Send send, byte[] value) throws Exception;

    /**
     * Asks the client to send what it still holds back of this thread, as its own synchronous call does; does not
     * wait.
     */
    protected void flush() {}

    /** The load is over: the last message was offered. For a client that holds calls back until there are enough. */
    protected void loadEnded() {}

    /** A client of its own for a sending thread. Only for {@code transactions}; called while this is constructed. */
    protected TransactionalClient transactional(String id) {
        throw new WorkerFailure("transactions: this worker has none");
    }

    /** Why the client takes nothing any more, if the error of a send says so in its own words; else null. */
    protected Death death(Throwable error) {
        return null;
    }

    /** Closes the client; no call is open. */
    protected abstract void close() throws Exception;

    /** What the client shows of the chances a bug had, by counter (harness/exposure.py); also before it connects. */
    protected Map<String, Object> exposure() {
        return Map.of();
    }

    // -- life

    /** Returns when every row it will ever complete is complete. */
    public void run() throws Exception {
        session.report.counts(this::counts);
        connectClients();
        session.ready();
        control.awaitStart();
        if (senders.size() == 1) {
            senders.get(0).produce();
        } else {
            produceInThreads();
        }
        if (broken != null) { // no room for the next row: what is under way still gets its outcome
            flush();
            settle(System.nanoTime() + SETTLE_NS);
            throw broken;
        }
        if (openCalls() == 0) {
            closeClients();
        }
    }

    private void connectClients() throws Exception {
        connect();
        for (Sender sender : senders) {
            if (sender.transactions != null) {
                sender.transactions.client.init();
            }
        }
    }

    private void closeClients() throws Exception {
        close();
        for (Sender sender : senders) {
            if (sender.transactions != null) {
                sender.transactions.client.close();
            }
        }
    }

    /** A thread each. One that the client holds for ever keeps nobody: this one goes on at the end. */
    private void produceInThreads() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (Sender sender : senders) {
            Thread thread = new Thread(sender::produce, "send-" + threads.size());
            thread.setDaemon(true);
            thread.setUncaughtExceptionHandler((gone, error) -> crashed = error);
            thread.start();
            threads.add(thread);
        }
        while (threads.stream().anyMatch(Thread::isAlive)
                && !control.isOver()
                && broken == null
                && crashed == null) {
            LockSupport.parkNanos(SLACK_NS);
        }
        if (crashed != null) {
            throw new IllegalStateException("a sending thread ended", crashed);
        }
        long end = System.nanoTime() + END_NS;
        for (Thread thread : threads) {
            thread.join(Math.max(1, (end - System.nanoTime()) / 1_000_000));
        }
    }

    private void settle(long deadlineNs) {
        while (openCalls() > 0 && !control.isOver() && System.nanoTime() < deadlineNs) {
            LockSupport.parkNanos(SLACK_NS);
        }
    }

    // -- a pipeline, whose other half says when and of what

    /** Connects, and initialises the transactional id where there is one. */
    public final void openPipeline() throws Exception {
        connectClients();
    }

    /** A message was handed over: what is made of it belongs to the open transaction, or to a new one. */
    public final void beginIfNone() {
        if (sender().transactions != null) {
            sender().transactions.beforeSend();
        }
    }

    /**
     * Sends what was made of a message.
     *
     * @param index of the lane
     * @param nowNs when the message was handed over
     * @param partition of the message, as {@code offset}
     */
    public final void made(int index, long seq, int kind, long nowNs, int partition, long offset) {
        sender().made(lanes.get(index), seq, kind, nowNs, partition, offset);
    }

    /** Whether the open transaction has all its messages, or all its time. */
    public final boolean isTransactionDue() {
        return sender().transactions != null && sender().transactions.isDue();
    }

    /** When the open transaction is to end by time. */
    public final long transactionEndNs() {
        return sender().transactions == null ? Long.MAX_VALUE : sender().transactions.endNs();
    }

    /** Ends the open transaction as the application wants it, or by an abort; whether it is committed. */
    public final boolean endTransaction(boolean mayCommit) {
        Transactions own = sender().transactions;
        return own.end(mayCommit && own.wantsCommit());
    }

    /** Waits for every answer; how many were no good ones since the beginning. */
    public final long awaitAnswers() {
        sender().awaitEveryAnswer();
        return openCalls() + sender().fail.sum() + sender().info.sum();
    }

    /** Closes the client. */
    public final void closePipeline() throws Exception {
        closeClients();
    }

    private Sender sender() {
        return senders.get(0);
    }

    // -- numbers

    private long sum(ToLongFunction<Sender> number) {
        return senders.stream().mapToLong(number).sum();
    }

    private long openCalls() {
        return sum(Sender::open);
    }

    public final Map<String, Object> counts() {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("attempted", sum(sender -> sender.attempted));
        found.put("ok", sum(sender -> sender.ok.sum()));
        found.put("fail", sum(sender -> sender.fail.sum()));
        found.put("info", sum(sender -> sender.info.sum()));
        found.put("aborted", sum(sender -> sender.aborted.sum()));
        found.put("open", openCalls());
        found.put("late_max_ns", senders.stream().mapToLong(Sender::takeLateMaxNs).max().orElse(0));
        found.put("blocked_ns", sum(Sender::blockedNs));
        if (resends) {
            found.put("resent", sum(Sender::resent));
        }
        Map<String, Object> exposure = exposure();
        if (!exposure.isEmpty()) {
            found.put("exposure", exposure);
        }
        return found;
    }
}
