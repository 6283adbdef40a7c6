package brokerstorm.kit;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * The producer role but for the client: life, schedule, rows, numbers.
 *
 * <p>A worker derives from it and adds the client. The client is never helped: nothing is sent twice (unless the
 * application does that: {@code results: resent}), nothing is reordered, every result is written down. One thread
 * sends; answers may come on any.
 */
public abstract class OpenLoop {
    /** Messages between two looks at commands. */
    private static final int BATCH = 500;
    /** Shortest sleep between looks at the schedule. */
    private static final long SLACK_NS = 2_000_000;
    /** A call longer than this was blocked, not just busy. */
    private static final long BLOCKED_NS = 5_000_000;
    /** A span shorter than this cannot hold a freeze worth a look at the clocks. */
    private static final long LONG_NS = 50_000_000;
    /** How long calls under way are waited for when the capture cannot go on. */
    private static final long SETTLE_NS = 10_000_000_000L;
    private static final long GLANCE_NS = 50_000;

    protected final Session session;
    protected final Control control;
    protected final List<Lane> lanes;
    /** A full queue: wait for room as a patient application, or count it as failed. */
    protected final boolean waitsWhenFull;

    private final Schedule schedule;
    private final Lateness lateness;
    private final Payload payload;
    private final Segments segments;
    private final boolean capture;
    private final Resends resends;
    /** {@code calls: sync}: a call returns before the next begins. */
    private final boolean isSync;
    private final LongAdder ok = new LongAdder();
    private final LongAdder fail = new LongAdder();
    private final LongAdder info = new LongAdder();
    private volatile long attempted;
    private volatile long blockedNs;
    private volatile long blockedSinceNs;
    private volatile WorkerFailure broken;

    protected OpenLoop(Session session) {
        Spec.Section part = session.spec.part;
        int instance = (int) part.number("instance");
        this.session = session;
        this.control = session.control;
        this.lanes = session.spec.lanes();
        this.waitsWhenFull = part.text("when_full").equals("wait");
        this.schedule = new Schedule(part.decimal("rate_per_s"), part.decimal("warm_up_s"), part.decimal("load_s"));
        this.lateness = new Lateness(schedule.periodNs);
        this.payload = new Payload(session.spec.runTag, instance, (int) part.number("payload_bytes"));
        this.segments =
                new Segments(session.spec.folder, Layout.Table.SENDS, instance, session.spec.runTag, 0);
        this.capture = part.flag("capture", true);
        this.resends = new Resends(part.text("results", "checked").equals("resent"));
        this.isSync = isSync(part.text("calls", "async"));
    }

    private static boolean isSync(String calls) {
        if (!calls.equals("async") && !calls.equals("sync")) {
            throw new WorkerFailure("calls '" + calls + "': this worker has async and sync");
        }
        return calls.equals("sync");
    }

    // -- what the client adds

    /** Returns when the client can send to every lane. */
    protected abstract void connect() throws Exception;

    /** Calls the client once. Its answer goes to the {@code send}; an exception means that it took nothing. */
    protected abstract void send(Send send, byte[] value) throws Exception;

    /** Asks the client to send what it still holds back, as its own synchronous call does; does not wait. */
    protected void flush() {}

    /** The load is over: the last message was offered. For a client that holds calls back until there are enough. */
    protected void loadEnded() {}

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
        connect();
        session.ready();
        control.awaitStart();
        schedule.begin(control.t0Ns());
        try {
            if (schedule.isUnlimited()) {
                loadUnlimited();
            } else {
                loadAtRate();
            }
        } catch (WorkerFailure noRoom) { // for the next row: what is under way still gets its outcome
            broken = noRoom;
            flush();
            settle(System.nanoTime() + SETTLE_NS);
            throw noRoom;
        }
        loadEnded();
        while (!control.isDraining()) {
            resendDue();
            LockSupport.parkNanos(SLACK_NS);
        }
        settle(control.deadlineNs());
        if (open() == 0) {
            close();
        }
    }

    private void loadAtRate() {
        FreezeWatch freeze = session.report.freeze();
        long sent = 0;
        while (sent < schedule.total && !control.isLoadStopped()) {
            long begun = System.nanoTime();
            long blocked = blockedNs;
            long frozen = freeze.frozenNs();
            long due = schedule.dueCount(begun);
            if (due == sent) {
                long wake = Math.max(schedule.dueNs(sent), begun + SLACK_NS);
                sleepUntil(wake);
                lookForFreeze(begun);
                lateness.caughtUp(System.nanoTime() - wake - (freeze.frozenNs() - frozen));
                continue;
            }
            boolean warmsUp = sent < schedule.warmUpCount;
            long edge = warmsUp ? schedule.warmUpCount : schedule.total;
            long next = offer(sent, Math.min(Math.min(due, sent + BATCH), edge), warmsUp);
            lookForFreeze(begun);
            long own = System.nanoTime() - begun - (blockedNs - blocked) - (freeze.frozenNs() - frozen);
            lateness.worked(own, next - sent);
            sent = next;
        }
    }

    private void loadUnlimited() {
        sleepUntil(schedule.beginNs());
        long sent = 0;
        for (long now = System.nanoTime(); !control.isLoadStopped() && now < schedule.endNs(); ) {
            sent = offer(sent, sent + BATCH, now < schedule.loadBeginNs());
            now = System.nanoTime();
        }
    }

    /** Sends messages {@code first .. stop-1} of the schedule; returns the next one, early when load is stopped. */
    private long offer(long first, long stop, boolean warmsUp) {
        int count = lanes.size();
        for (long i = first; i < stop; i++) {
            resendDue();
            long now = System.nanoTime();
            long due = schedule.isUnlimited() ? now : schedule.dueNs(i);
            int kind = warmsUp ? Layout.WARM_UP : Layout.LOAD;
            long took = call(new Send(this, lanes.get((int) (i % count)), i / count, 0, kind, due), now);
            if (took > BLOCKED_NS && control.isLoadStopped()) {
                return i + 1;
            }
        }
        return stop;
    }

    private void sleepUntil(long wakeNs) {
        for (long now = System.nanoTime(); now < wakeNs && !control.isLoadStopped(); now = System.nanoTime()) {
            resendDue();
            LockSupport.parkNanos(Math.min(wakeNs - now, resends.isEmpty() ? LONG_NS : SLACK_NS));
        }
    }

    /** Not left to the ticking thread when something took long: it may not have run yet. */
    private void lookForFreeze(long sinceNs) {
        if (System.nanoTime() - sinceNs > LONG_NS) {
            session.report.freeze().look();
        }
    }

    /** Waits for every open call and every re-send that is owed, until the deadline or {@code stop}. */
    private void settle(long deadlineNs) {
        while ((open() > 0 || !resends.isEmpty()) && !control.isOver() && System.nanoTime() < deadlineNs) {
            if (broken == null) {
                resendDue();
            }
            LockSupport.parkNanos(SLACK_NS);
        }
    }

    // -- one call

    private void resendDue() {
        for (Send next = resends.takeDue(); next != null; next = resends.takeDue()) {
            call(next, System.nanoTime());
        }
    }

    /** Writes the open row, calls the client; returns how long that took. */
    private long call(Send send, long startNs) {
        if (broken != null) {
            throw broken;
        }
        if (capture) {
            segments.next();
            send.rows = segments.rows();
            send.at = segments.at();
            Rows.openSend(
                    send.rows, send.at, send.lane.number, send.attempt, send.kind, send.seq, send.intendedNs, startNs);
        }
        byte[] value = payload.encode(
                send.kind, send.lane.number, send.seq, send.intendedNs, send.lane.keyNumber, send.attempt);
        blockedSinceNs = startNs;
        attempted++;
        try {
            send(send, value);
        } catch (Exception refused) {
            send.failed(Layout.FAIL, refused);
        }
        if (isSync) {
            awaitAnswers();
        }
        long took = System.nanoTime() - startNs;
        blockedSinceNs = 0;
        if (isSync || took > BLOCKED_NS) {
            blockedNs += took;
        }
        return took;
    }

    private void awaitAnswers() {
        flush();
        while (open() > 0 && !control.isOver()) {
            LockSupport.parkNanos(GLANCE_NS);
        }
    }

    /** The client answered; on any thread. */
    void answered(Send send, int outcome, Place place, Throwable error) {
        try {
            if (send.rows != null && !complete(send, outcome, place, error)) {
                return;
            }
        } catch (WorkerFailure noName) {
            broken = noName; // the row stays open: sealed as info
        }
        if (outcome != Layout.OK) {
            resends.failed(send);
        }
        (outcome == Layout.OK ? ok : outcome == Layout.FAIL ? fail : info).increment();
    }

    /** Completes the row; false when this was a second answer. */
    private boolean complete(Send send, int outcome, Place place, Throwable error) {
        if (Rows.isOutcomeKnown(send.rows, send.at)) {
            Rows.lateOutcome(send.rows, send.at, outcome);
            return false;
        }
        int number = 0;
        if (error != null) {
            String text = Failures.text(error);
            number = session.names.id("error", text);
            session.report.error(error.getClass().getSimpleName(), text);
        }
        Rows.closeSend(send.rows, send.at, System.nanoTime(), place, number);
        Rows.outcome(send.rows, send.at, outcome);
        return true;
    }

    // -- numbers

    private long open() {
        long settled = ok.sum() + fail.sum() + info.sum();
        return Math.max(0, attempted - settled);
    }

    private Map<String, Object> counts() {
        long since = blockedSinceNs;
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("attempted", attempted);
        found.put("ok", ok.sum());
        found.put("fail", fail.sum());
        found.put("info", info.sum());
        found.put("open", open());
        found.put("late_max_ns", lateness.takeMaxNs());
        found.put("blocked_ns", blockedNs + (since > 0 ? System.nanoTime() - since : 0));
        if (resends.isOn()) {
            found.put("resent", resends.count());
        }
        Map<String, Object> exposure = exposure();
        if (!exposure.isEmpty()) {
            found.put("exposure", exposure);
        }
        return found;
    }
}
