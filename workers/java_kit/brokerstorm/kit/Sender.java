package brokerstorm.kit;

import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/** A sending thread of a producer: its lanes, its part of the schedule, its rows, its numbers. */
final class Sender {
    /** Messages between two looks at commands. */
    private static final int BATCH = 500;
    /** A call longer than this was blocked, not just busy. */
    private static final long BLOCKED_NS = 5_000_000;
    /** A span shorter than this cannot hold a freeze worth a look at the clocks. */
    private static final long LONG_NS = 50_000_000;
    private static final long GLANCE_NS = 50_000;

    final LongAdder ok = new LongAdder();
    final LongAdder fail = new LongAdder();
    final LongAdder info = new LongAdder();
    final LongAdder aborted = new LongAdder();
    /** null = it sends without. */
    final Transactions transactions;
    volatile long attempted;

    private final OpenLoop loop;
    private final Session session;
    private final Control control;
    private final Turns turns;
    private final Schedule schedule;
    private final Lateness lateness = new Lateness();
    private final Payload payload;
    /** Makes bodies in the user's shape; null = payloads are filled. */
    private final Template template;
    /** What makes the values of headers that differ by message, by name. */
    private final Map<String, Template> headerTemplates = new LinkedHashMap<>();
    private final Segments segments;
    private final ResendQueue resends;
    private volatile long blockedNs;
    private volatile long blockedSinceNs;

    /** Of the loop's lanes it has every {@code threads}-th from {@code thread} on, and as much of the rate. */
    Sender(OpenLoop loop, int thread, int threads, Segments segments, Segments ofTransactions) {
        Spec.Section part = loop.session.spec.part;
        this.loop = loop;
        this.session = loop.session;
        this.control = loop.control;
        this.segments = segments;
        this.turns = new Turns(loop.lanes, part.integers("turns"), thread, threads);
        double rate = part.decimal("rate_per_s") * turns.share;
        this.schedule = new Schedule(
                rate, part.decimal("warm_up_s"), part.decimal("load_s"), part.pairs("rate_profile"));
        int least = (int) part.number("payload_bytes");
        int most = (int) part.number("payload_max_bytes", least);
        int[] sizes = part.integers("payload_sizes");
        int compressible = (int) part.number("payload_compressible", -1);
        int instance = (int) part.number("instance");
        this.payload = new Payload(session.spec.runTag, instance, least, most, compressible, sizes);
        Charset charset = part.has("payload_charset") ? StandardCharsets.ISO_8859_1 : StandardCharsets.UTF_8;
        this.template = loop.hasTemplate ? new Template(part.text("payload_template"), instance, charset) : null;
        part.textPairs("header_templates").forEach((name, text) ->
                headerTemplates.put(name, new Template(text, instance, StandardCharsets.UTF_8)));
        this.resends = new ResendQueue(loop.resends);
        this.transactions =
                ofTransactions == null ? null : new Transactions(this, loop, thread, threads, ofTransactions);
    }

    /** Value of each header of a message that differs by message, by name. */
    Map<String, String> headersOf(Send send) {
        Map<String, String> found = new LinkedHashMap<>();
        headerTemplates.forEach((name, made) -> found.put(
                name, new String(made.body(send.lane, send.seq, send.attempt), StandardCharsets.UTF_8)));
        return found;
    }

    /** Follows the schedule, then sees every call of this thread to its outcome. */
    void produce() {
        schedule.begin(control.t0Ns());
        try {
            if (schedule.isUnlimited()) {
                loadUnlimited();
            } else {
                loadAtRate();
            }
            if (transactions != null) {
                transactions.end();
            }
            loop.loadEnded();
            while (!control.isDraining()) {
                resendDue();
                LockSupport.parkNanos(OpenLoop.SLACK_NS);
            }
            settle();
        } catch (WorkerFailure noRoom) { // for the next row: the loop ends the worker
            loop.broken = noRoom;
        }
    }

    private void loadAtRate() {
        FreezeDetector freeze = session.report.freeze();
        long sent = 0;
        while (sent < schedule.total && !control.isLoadStopped()) {
            long blocked = blockedNs;
            long frozen = freeze.frozenNs();
            // The clock is read last here and first below: a freeze between two of these lines is not own work.
            long begun = System.nanoTime();
            long due = schedule.dueCount(begun);
            if (due == sent) {
                long wake = Math.max(Math.min(schedule.dueNs(sent), endNs()), begun + OpenLoop.SLACK_NS);
                sleepUntil(wake);
                endIfDue();
                long woke = System.nanoTime();
                lookForFreeze(begun, woke);
                long own = woke - wake - (blockedNs - blocked) - (freeze.frozenNs() - frozen);
                lateness.caughtUp(own);
                continue;
            }
            boolean warmsUp = sent < schedule.warmUpCount;
            long edge = warmsUp ? schedule.warmUpCount : schedule.total;
            long next = offer(sent, Math.min(Math.min(due, sent + BATCH), edge), warmsUp);
            long ended = System.nanoTime();
            lookForFreeze(begun, ended);
            long own = ended - begun - (blockedNs - blocked) - (freeze.frozenNs() - frozen);
            lateness.worked(own, schedule.dueNs(next) - schedule.dueNs(sent));
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
        for (long i = first; i < stop; i++) {
            resendDue();
            if (transactions != null) {
                transactions.beforeSend();
            }
            long now = System.nanoTime();
            long due = schedule.isUnlimited() ? now : schedule.dueNs(i);
            int kind = warmsUp ? Layout.WARM_UP : Layout.LOAD;
            long took = call(new Send(this, turns.lane(i), turns.seq(i), 0, kind, due), now);
            long ending = endIfDue();
            if (Math.max(took, ending) > BLOCKED_NS && control.isLoadStopped()) {
                return i + 1;
            }
        }
        return stop;
    }

    private long endNs() {
        return transactions == null ? Long.MAX_VALUE : transactions.endNs();
    }

    /** Ends the open transaction if it is time; how long that took. */
    private long endIfDue() {
        if (transactions == null) {
            return 0;
        }
        long began = System.nanoTime();
        transactions.endIfDue();
        return System.nanoTime() - began;
    }

    void blocked(long ns) {
        blockedNs += ns;
    }

    Death death(Throwable error) {
        return loop.death(error);
    }

    private void sleepUntil(long wakeNs) {
        for (long now = System.nanoTime(); now < wakeNs && !control.isLoadStopped(); now = System.nanoTime()) {
            resendDue();
            LockSupport.parkNanos(Math.min(wakeNs - now, resends.isEmpty() ? LONG_NS : OpenLoop.SLACK_NS));
        }
    }

    /** Not left to the ticking thread when something took long: it may not have run yet. */
    private void lookForFreeze(long sinceNs, long nowNs) {
        if (nowNs - sinceNs > LONG_NS) {
            session.report.freeze().check();
        }
    }

    /** Waits for every open call and every re-send that is owed, until the deadline or {@code stop}. */
    private void settle() {
        while ((open() > 0 || !resends.isEmpty()) && !control.isOver()) {
            resendDue();
            LockSupport.parkNanos(OpenLoop.SLACK_NS);
        }
    }

    // -- one call

    private void resendDue() {
        for (Send next = resends.takeDue(); next != null; next = resends.takeDue()) {
            call(next, System.nanoTime());
        }
    }

    /** Of a pipeline: sends what was made of a message. */
    void made(Lane lane, long seq, int kind, long nowNs, int partition, long offset) {
        Send send = new Send(this, lane, seq, 0, kind, nowNs);
        send.sourcePartition = partition;
        send.sourceOffset = offset;
        call(send, System.nanoTime());
    }

    /** Of a pipeline without transactions: waits for every answer. */
    void awaitEveryAnswer() {
        long began = System.nanoTime();
        awaitAnswers();
        blocked(System.nanoTime() - began);
    }

    /** Writes the open row, calls the client; returns how long that took. */
    private long call(Send send, long startNs) {
        if (loop.broken != null) {
            throw loop.broken;
        }
        if (loop.capture) {
            segments.next();
            send.rows = segments.rows();
            send.at = segments.at();
            if (transactions != null) {
                send.transaction = transactions.number;
                Rows.inTransaction(send.rows, send.at, send.transaction);
            }
            Rows.openSend(
                    send.rows, send.at, send.lane.number, send.attempt, send.kind, send.seq, send.intendedNs, startNs);
        }
        byte[] value = template == null
                ? payload.encode(
                        send.kind, send.lane.number, send.seq, send.intendedNs, send.lane.keyNumber, send.attempt,
                        send.sourcePartition, send.sourceOffset)
                : payload.around(
                        template.body(send.lane, send.seq, send.attempt), send.kind, send.lane.number, send.seq,
                        send.intendedNs, send.lane.keyNumber, send.attempt);
        if (transactions != null) {
            transactions.offered(send);
        }
        blockedSinceNs = startNs;
        attempted++;
        send.caller = Thread.currentThread();
        try {
            loop.send(send, value);
        } catch (Exception refused) {
            send.failed(Layout.FAIL, refused);
        }
        send.caller = null;
        if (loop.isSync) {
            awaitAnswers();
        }
        long took = System.nanoTime() - startNs;
        blockedSinceNs = 0;
        if (loop.isSync || took > BLOCKED_NS) {
            blockedNs += took;
        }
        return took;
    }

    private void awaitAnswers() {
        loop.flush();
        while (open() > 0 && !control.isOver()) {
            LockSupport.parkNanos(GLANCE_NS);
        }
    }

    /** The client answered; on any thread. */
    void answered(Send send, int outcome, MessagePosition place, Throwable error) {
        if (send.transaction != 0 && !send.isInCall()) {
            reported(send, place, error);
            return;
        }
        try {
            if (send.rows != null && !complete(send, outcome, place, error)) {
                return;
            }
        } catch (WorkerFailure noName) {
            loop.broken = noName; // the row stays open: sealed as info
        }
        if (outcome != Layout.OK) {
            resends.failed(send);
            Death death = loop.death(error);
            if (death != null) {
                session.report.clientDied(error, death);
            }
        }
        tally(outcome).increment();
    }

    /** An answer to a send in a transaction: its row has no outcome before that of the transaction. */
    private void reported(Send send, MessagePosition place, Throwable error) {
        if (error != null) {
            transactions.refused(error);
        } else if (!Rows.isOutcomeKnown(send.rows, send.at)) {
            Rows.closeSend(send.rows, send.at, System.nanoTime(), place, 0);
        }
    }

    /** Sends of a transaction that has an outcome; those that the client refused at once have theirs. */
    void completed(Iterable<Send> sends, int outcome, int error) {
        LongAdder tally = tally(outcome);
        for (Send send : sends) {
            if (Rows.isOutcomeKnown(send.rows, send.at)) {
                continue;
            }
            if (!Rows.isDone(send.rows, send.at)) {
                Rows.closeSend(send.rows, send.at, System.nanoTime(), new MessagePosition(), error);
            } else if (error != 0) {
                Rows.error(send.rows, send.at, error);
            }
            Rows.outcome(send.rows, send.at, outcome);
            tally.increment();
        }
    }

    private LongAdder tally(int outcome) {
        return outcome == Layout.OK ? ok : outcome == Layout.FAIL ? fail : outcome == Layout.ABORTED ? aborted : info;
    }

    /** Completes the row; false when this was a second answer. */
    private boolean complete(Send send, int outcome, MessagePosition place, Throwable error) {
        if (Rows.isOutcomeKnown(send.rows, send.at)) {
            Rows.lateOutcome(send.rows, send.at, outcome);
            return false;
        }
        int number = 0;
        if (error != null) {
            String text = ErrorTexts.text(error);
            number = session.names.id("error", text);
            session.report.error(error.getClass().getSimpleName(), text);
        }
        Rows.closeSend(send.rows, send.at, System.nanoTime(), place, number);
        Rows.outcome(send.rows, send.at, outcome);
        return true;
    }

    // -- numbers

    long open() {
        return Math.max(0, attempted - ok.sum() - fail.sum() - info.sum() - aborted.sum());
    }

    long takeLateMaxNs() {
        return lateness.takeMaxNs();
    }

    long blockedNs() {
        long since = blockedSinceNs;
        return blockedNs + (since > 0 ? System.nanoTime() - since : 0);
    }

    long resent() {
        return resends.count();
    }
}
