package brokerstorm.kit;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Capture of an audit: rows of the log, and how far each stream was read. Safe on any thread. */
public final class LogCapture {
    private final Session session;
    private final Segments segments;
    private long read;

    public LogCapture(Session session) {
        int reader = (int) session.spec.part.number("reader");
        this.session = session;
        this.segments = new Segments(session.spec.folder, Layout.Table.LOG, reader, session.spec.runTag, 0);
    }

    /**
     * A message of the log.
     *
     * @param brokerTimeMs Unix time the broker or client stamped it with, -1 none
     * @throws WorkerFailure the next segment cannot be made
     */
    public synchronized void found(MessagePosition place, long brokerTimeMs, byte[] value) {
        segments.next();
        int check = Payload.check(value, session.spec.runTag);
        Rows.log(segments.rows(), segments.at(), place, brokerTimeMs, value, check);
        read++;
    }

    public synchronized long read() {
        return read;
    }

    /** Read progress of one stream, a line of log_bounds.jsonl. */
    public static final class Bounds {
        public final String stream;
        public final int streamId;
        public volatile long begin;
        public volatile long end;
        public volatile long readTo;
        /** {@code end}, {@code stall}, {@code error} or {@code deadline}; empty while it is being read. */
        public volatile String why = "";

        public Bounds(Session session, String stream) {
            this.stream = stream;
            this.streamId = session.names.stream(stream);
        }
    }

    /**
     * Writes log_bounds.jsonl.
     *
     * @param isolation read_uncommitted, read_committed or remaining
     */
    public void write(List<Bounds> streams, String isolation) {
        List<String> lines = new ArrayList<>();
        for (Bounds one : streams) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("stream", one.stream);
            line.put("stream_id", one.streamId);
            line.put("begin", one.begin);
            line.put("end", one.end);
            line.put("read_to", one.readTo);
            line.put("why", one.why.isEmpty() ? "error" : one.why);
            line.put("isolation", isolation);
            lines.add(Json.write(line));
        }
        Path path = session.spec.folder.resolve("log_bounds.jsonl");
        try {
            Files.write(path, lines, StandardCharsets.UTF_8);
        } catch (IOException error) {
            throw new WorkerFailure("cannot write " + path + ": " + ErrorTexts.reason(error));
        }
    }
}
