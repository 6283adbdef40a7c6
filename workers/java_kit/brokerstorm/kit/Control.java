package brokerstorm.kit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import sun.misc.Signal;
import sun.misc.SignalHandler;

/** Commands of the harness so far. Fields are only ever set, by one thread. */
public final class Control {
    public static final long NEVER_NS = 1L << 62;

    private final CountDownLatch started = new CountDownLatch(1);
    private volatile long t0Ns;
    private volatile long deadlineNs = NEVER_NS;
    private volatile boolean stopLoad;
    private volatile boolean draining;
    private volatile boolean stopped;

    /** When warm-up begins; 0 before {@code start}. */
    public long t0Ns() {
        return t0Ns;
    }

    /** When to give up waiting for open calls. */
    public long deadlineNs() {
        return deadlineNs;
    }

    public boolean isLoadStopped() {
        return stopLoad;
    }

    public boolean isDraining() {
        return draining;
    }

    public boolean isStopped() {
        return stopped;
    }

    /** Whether the worker shall end: {@code stop}, or the deadline of the drain is over. */
    public boolean isOver() {
        return stopped || System.nanoTime() >= deadlineNs;
    }

    /** Waits for {@code start} (or {@code stop}). */
    public void awaitStart() {
        try {
            started.await();
        } catch (InterruptedException error) {
            stop();
        }
    }

    /** Whether {@code start} came within this time. */
    public boolean awaitStart(long milliseconds) {
        try {
            return started.await(milliseconds, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            stop();
            return true;
        }
    }

    public void stop() {
        stopLoad = true;
        draining = true;
        stopped = true;
        started.countDown(); // so that a worker still waiting for `start` ends too
    }

    /** Takes one command line; unknown ones are reported and ignored. */
    private void handle(String line, Reporter report) {
        String[] words = line.trim().split("\\s+");
        boolean hasTime = words.length == 2 && words[1].matches("[0-9]{1,18}");
        if (words[0].equals("start") && hasTime) {
            t0Ns = Long.parseLong(words[1]);
            started.countDown();
        } else if (words[0].equals("stop-load") && words.length == 1) {
            stopLoad = true;
        } else if (words[0].equals("drain") && hasTime) {
            deadlineNs = Long.parseLong(words[1]);
            stopLoad = true;
            draining = true;
        } else if (words[0].equals("stop") && words.length == 1) {
            stop();
        } else if (!words[0].isEmpty()) {
            report.error("protocol", "unknown command '" + line.trim() + "'");
        }
    }

    /**
     * Reads commands in the background; the end of input means that the harness is gone: stop. SIGTERM means stop
     * too, Ctrl-C is left to the harness, SIGQUIT to the JVM (stacks on stdout).
     */
    void listen(Reporter report) {
        Signal.handle(new Signal("TERM"), signal -> stop());
        Signal.handle(new Signal("INT"), SignalHandler.SIG_IGN);
        Thread reader = new Thread(
                () -> {
                    try (BufferedReader commands =
                            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                            handle(line, report);
                        }
                    } catch (IOException error) {
                        report.error("protocol", "cannot read commands: " + ErrorTexts.reason(error));
                    }
                    stop();
                },
                "commands");
        reader.setDaemon(true);
        reader.start();
    }
}
