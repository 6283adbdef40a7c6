package brokerstorm.kit;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * names.jsonl: the text of every id used in rows, on disk before the id's first use.
 *
 * <p>One id space a worker, from 1. Streams keep the ids of the spec, everything else comes behind. Errors have no
 * secrets. Safe to use from client threads.
 */
public final class Names {
    private final Map<String, Integer> ids = new ConcurrentHashMap<>();
    // No FileChannel: a thread that a client interrupts would close it with its first write.
    private final FileOutputStream file;
    private int next = 1;

    /** @throws WorkerFailure the file cannot be written */
    public Names(Path folder, Map<String, Integer> streams) {
        Path path = folder.resolve("names.jsonl");
        try {
            file = new FileOutputStream(path.toFile(), true);
        } catch (IOException error) {
            throw new WorkerFailure("cannot write " + path + ": " + ErrorTexts.reason(error));
        }
        List<Map.Entry<String, Integer>> ordered = new ArrayList<>(streams.entrySet());
        ordered.sort(Comparator.comparing(Map.Entry::getValue));
        for (Map.Entry<String, Integer> stream : ordered) {
            add("stream", stream.getKey(), stream.getValue());
        }
    }

    /** The id of the stream {@code topic-partition}. */
    public int stream(String name) {
        return id("stream", name);
    }

    /**
     * The id of a text; a new one is written down before it is returned.
     *
     * @param kind stream, error, client_name or subscription
     * @throws WorkerFailure it cannot be written
     */
    public int id(String kind, String text) {
        Integer known = ids.get(kind + ' ' + text);
        if (known != null) {
            return known;
        }
        synchronized (this) {
            known = ids.get(kind + ' ' + text);
            return known != null ? known : add(kind, text, next);
        }
    }

    private int add(String kind, String text, int id) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", id);
        line.put("kind", kind);
        line.put("text", kind.equals("error") ? ErrorTexts.withoutSecrets(text) : text);
        try { // one write: the whole line or (killed before) none
            file.write((Json.write(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new WorkerFailure("cannot write names.jsonl: " + ErrorTexts.reason(error));
        }
        next = Math.max(next, id + 1);
        ids.put(kind + ' ' + text, id);
        return id;
    }
}
