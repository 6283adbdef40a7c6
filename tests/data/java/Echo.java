import brokerstorm.kit.Layout;
import brokerstorm.kit.DidYouMean;
import brokerstorm.kit.OpenLoop;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Send;
import brokerstorm.kit.Session;
import brokerstorm.kit.Worker;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** A worker without a client, to try the kit: it answers as its option {@code answers} says, after 2 ms. */
public final class Echo extends OpenLoop {
    private static final long HOLD_NS = 700_000_000;

    private final ScheduledExecutorService client = Executors.newSingleThreadScheduledExecutor();
    private final String answers;

    @Override
    protected boolean sendsFromThreads() {
        return true;
    }

    private Echo(Session session) {
        super(session);
        answers = session.spec.options.getOrDefault("answers", "ok");
    }

    public static void main(String[] args) {
        Worker.main(args, Map.of("producer", session -> new Echo(session).run()),
                Map.of("client_version", "1"), IllegalStateException.class);
    }

    @Override
    protected void connect() {
        if (answers.equals("unpacks a library")) {
            try {
                java.io.File.createTempFile("library", ".so");
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }
        if (answers.equals("refuses options")) {
            throw new IllegalStateException("no" + DidYouMean.guess("answer", List.of("answers", "linger")));
        }
        if (answers.equals("lacks a jar")) {
            throw new NoClassDefFoundError("org/apache/mina/common/IoHandlerAdapter");
        }
    }

    @Override
    protected void send(Send send, byte[] value) {
        if (answers.equals("refuses messages")) {
            throw new IllegalArgumentException("message 17 of bs-3da4fe90 is too large");
        }
        if (answers.equals("holds the second call") && send.attempt > 0) {
            LockSupport.parkNanos(HOLD_NS);
        }
        client.schedule(() -> answer(send), 2, TimeUnit.MILLISECONDS);
    }

    private void answer(Send send) {
        boolean onlyThen = answers.equals("second time") || answers.equals("holds the second call");
        if (answers.equals("ok") || (onlyThen && send.attempt > 0)) {
            send.ok(new MessagePosition(1, send.seq));
        } else if (!answers.equals("never")) {
            if (answers.equals("interrupted")) { // as a thread of a client whose connection breaks may be
                Thread.currentThread().interrupt();
            }
            send.failed(Layout.INFO, new IllegalStateException("timed out after 1.5 s"));
        }
    }

    @Override
    protected void close() {}
}
