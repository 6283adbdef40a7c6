package brokerstorm.kit;

import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/** Every line the worker says: JSON, one a line, on stdout. A thread prints the stats each second. */
public final class Reporter {
    private static final Path MEMORY = Paths.get("/proc/self/statm");
    private static final long PAGE_BYTES = 4096;

    private final OutputStream out = new FileOutputStream(FileDescriptor.out);
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final FreezeDetector freeze = new FreezeDetector(this::frozen);
    private volatile Supplier<Map<String, Object>> counts;
    private volatile Runnable everyTick = () -> {};
    private volatile boolean isClosed;
    private volatile boolean hasClientDied;

    Reporter() {
        // Whatever a client prints belongs into the log: stdout is for the protocol.
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.err), true));
    }

    public FreezeDetector freeze() {
        return freeze;
    }

    /** The role's own numbers of the stats line; asked for on the ticking thread. */
    public void counts(Supplier<Map<String, Object>> given) {
        counts = given;
    }

    /** Called every 50 ms on the ticking thread, to look at what the client shows of its state. */
    public void everyTick(Runnable look) {
        everyTick = look;
    }

    void start() {
        Thread ticker = new Thread(this::tick, "ticker");
        ticker.setDaemon(true);
        ticker.start();
    }

    private void tick() {
        long second = TimeUnit.SECONDS.toNanos(1);
        long nextStats = System.nanoTime() + second;
        while (!isClosed) {
            LockSupport.parkNanos(FreezeDetector.TICK_NS);
            freeze.check();
            everyTick.run();
            if (System.nanoTime() >= nextStats && !isClosed) {
                nextStats = Math.max(nextStats + second, System.nanoTime());
                stats();
            }
        }
    }

    /** @param versions {@code client_version} and whatever else the line shall say */
    void ready(String library, Map<String, String> versions) {
        Map<String, Object> line = line("ready");
        line.put("pid", ProcessHandle.current().pid());
        line.put("client", library);
        line.putAll(versions);
        line.put("java", System.getProperty("java.version"));
        emit(line);
    }

    private void stats() {
        if (counts == null) { // no role runs yet
            return;
        }
        Map<String, Object> line = line("stats");
        line.put("cpu_s", Math.round(FreezeDetector.cpuNs() / 1e5) / 1e4);
        line.put("rss_bytes", residentBytes());
        line.put("frozen_ns", freeze.frozenNs());
        line.putAll(counts.get());
        emit(line);
    }

    /** Something worth a mark on a time line; kinds are in docs/worker-protocol.md. */
    public void event(String kind, String text, Map<String, ?> more) {
        Map<String, Object> line = line("event");
        line.put("kind", kind);
        line.put("text", text);
        line.putAll(more);
        emit(line);
    }

    public void event(String kind, String text) {
        event(kind, text, Map.of());
    }

    /** Says, once, that the client declared itself dead, in its own words. On any thread. */
    public void clientDied(Throwable error, Death why) {
        synchronized (this) {
            if (hasClientDied) {
                return;
            }
            hasClientDied = true;
        }
        String text = String.valueOf(error).split("\n", 2)[0];
        if (error.getCause() != null) {
            text += "; " + String.valueOf(error.getCause()).split("\n", 2)[0];
        }
        event("client-died", text, Map.of("name", error.getClass().getSimpleName(), "why", why.word()));
    }

    /** Whether {@link #clientDied} was said: nothing more is asked of the client. */
    public boolean hasClientDied() {
        return hasClientDied;
    }

    /** Says the first error of a class; further ones of the same name are only counted in rows. */
    public void error(String name, String text) {
        if (seen.add(name)) {
            error(name, text, false, "");
        }
    }

    void error(String name, String text, boolean isFatal, String hint) {
        Map<String, Object> line = line("error");
        line.put("fatal", isFatal);
        line.put("name", name);
        line.put("text", text);
        if (isFatal) {
            line.put("hint", hint);
        }
        emit(line);
    }

    /** Last stats, then {@code done}: the capture of this worker is complete. */
    void done() {
        isClosed = true;
        stats();
        Map<String, Object> line = line("done");
        if (counts != null) {
            line.putAll(counts.get());
        }
        emit(line);
    }

    void close() {
        isClosed = true;
    }

    private void frozen(long ns) {
        String text = String.format("this process did not run for %.3f s", ns / 1e9);
        event("frozen", text, Map.of("frozen_ns", ns));
    }

    private static Map<String, Object> line(String type) {
        Instant wall = Instant.now();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("type", type);
        line.put("t_ns", System.nanoTime());
        line.put("wall_ns", wall.getEpochSecond() * 1_000_000_000L + wall.getNano());
        return line;
    }

    private synchronized void emit(Map<String, Object> line) {
        try {
            out.write((Json.write(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException harnessIsGone) {
            return; // not an error here: the end of stdin tells
        }
    }

    private static long residentBytes() {
        try {
            return Long.parseLong(Files.readString(MEMORY).split(" ")[1]) * PAGE_BYTES;
        } catch (IOException error) {
            return 0; // no /proc
        }
    }
}
