package brokerstorm.kit;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The JSON spec a worker is started with (docs/worker-protocol.md), checked and typed. */
public final class Spec {
    private static final int PROTOCOL = 1;

    public final String runId;
    public final int runTag;
    public final String role;
    public final String name;
    public final Path folder;
    public final String bootstrap;
    /** Stream {@code topic-partition} to its name id. */
    public final Map<String, Integer> streams = new LinkedHashMap<>();
    /** Topics by the name in the plan; a topic the spec does not describe is its own address. */
    public final Map<String, Topic> topics = new LinkedHashMap<>();
    public final String library;
    /** The client's own options, as text; over them what the cluster asks of clients, secrets among them. */
    public final Map<String, String> options = new LinkedHashMap<>();
    /** The section of the role. */
    public final Section part;
    private final Section raw;
    /** What the cluster asks of clients. */
    private final Map<?, ?> asked;

    /** What the client is given for a topic, and how many partitions it has. */
    public static final class Topic {
        public final String name;
        public final String address;
        public final int partitions;

        Topic(String name, String address, int partitions) {
            this.name = name;
            this.address = address;
            this.partitions = partitions;
        }
    }

    /**
     * Reads a spec file.
     *
     * @throws WorkerFailure missing, not JSON, another protocol, a key missing or of another type
     */
    public static Spec read(Path path) {
        Object raw;
        try {
            raw = Json.read(new String(Files.readAllBytes(path), StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new WorkerFailure("cannot read spec " + path + ": " + ErrorTexts.reason(error));
        } catch (IllegalArgumentException error) {
            throw new WorkerFailure("spec " + path + " is " + error.getMessage());
        }
        if (!(raw instanceof Map)) {
            throw new WorkerFailure("spec " + path + " is not a JSON object");
        }
        Section whole = new Section((Map<?, ?>) raw);
        return new Spec(whole, whole.text("role"), secured());
    }

    /** Of a pipeline: as the producer or the consumer that is in it. */
    public Spec half(String half) {
        return new Spec(raw, half, asked);
    }

    private Spec(Section raw, String role, Map<?, ?> asked) {
        long protocol = raw.number("protocol");
        if (protocol != PROTOCOL) {
            throw new WorkerFailure("spec asks for protocol " + protocol + ", this worker speaks " + PROTOCOL);
        }
        runId = raw.text("run_id");
        runTag = (int) raw.number("run_tag");
        this.raw = raw;
        this.role = role;
        this.asked = asked;
        name = raw.text("name");
        folder = Paths.get(raw.text("capture_dir"));
        bootstrap = raw.text("bootstrap");
        raw.section("streams").raw.forEach((stream, id) -> streams.put((String) stream, ((Long) id).intValue()));
        Section client = raw.section("client");
        library = client.text("library");
        defaults().forEach((key, value) -> options.put((String) key, String.valueOf(value)));
        boolean reads = role.equals("consumer") && raw.has("pipeline");
        Section given = reads ? raw.section("pipeline").section("consumer_options") : client.section("options");
        given.raw.forEach((key, value) -> options.put((String) key, String.valueOf(value)));
        asked.forEach((key, value) -> options.put((String) key, (String) value));
        if (raw.has("topics")) {
            Section described = raw.section("topics");
            for (Object topic : described.raw.keySet()) {
                Section one = described.section((String) topic);
                put((String) topic, one.text("address"), (int) one.number("partitions"));
            }
        }
        part = raw.section(role);
    }

    /** Options this worker sets unless the scenario does, by role: of its worker.toml. */
    private Map<?, ?> defaults() {
        Object byRole = Json.read(System.getenv().getOrDefault("BROKERSTORM_WORKER_OPTIONS", "{}"));
        Object ours = ((Map<?, ?>) byRole).get(role);
        return ours == null ? Map.of() : (Map<?, ?>) ours;
    }

    /** Options that clients of this cluster need: out of a pipe, so they can be read once. Secrets are hidden. */
    private static Map<?, ?> secured() {
        String path = System.getenv("BROKERSTORM_SECURITY");
        if (path == null) {
            return Map.of();
        }
        try {
            Object found = Json.read(new String(Files.readAllBytes(Paths.get(path)), StandardCharsets.UTF_8));
            Section secured = new Section((Map<?, ?>) found);
            ErrorTexts.hide(secured.texts("hidden"));
            return secured.section("options").raw;
        } catch (IOException | IllegalArgumentException error) {
            String why = error.getClass().getSimpleName(); // its message might quote what was read
            throw new WorkerFailure("BROKERSTORM_SECURITY: cannot read " + path + ": " + why);
        }
    }

    private void put(String topic, String address, int partitions) {
        topics.put(topic, new Topic(topic, address, partitions));
    }

    /** A topic of the plan. */
    public Topic topic(String topic) {
        return topics.computeIfAbsent(topic, unknown -> new Topic(unknown, unknown, 0));
    }

    /** The lanes of a producer in sending order. */
    public List<Lane> lanes() {
        List<Lane> found = new ArrayList<>();
        for (Section group : part.sections("lane_groups")) {
            Topic topic = topic(group.text("topic"));
            Lane.Mode mode = Lane.Mode.of(group.text("mode"));
            int first = (int) group.number("first");
            for (int i = 0; i < group.number("count"); i++) {
                found.add(new Lane(first + i, topic, mode, i, group.text("key", "{key}")));
            }
        }
        if (found.isEmpty()) {
            throw new WorkerFailure("a producer needs at least one lane");
        }
        return found;
    }

    /** An object of the spec; a key it lacks or of another type is a {@link WorkerFailure}. */
    public static final class Section {
        final Map<?, ?> raw;

        Section(Map<?, ?> raw) {
            this.raw = raw;
        }

        public boolean has(String key) {
            return raw.get(key) != null;
        }

        public String text(String key) {
            return get(key, String.class);
        }

        public String text(String key, String otherwise) {
            return has(key) ? text(key) : otherwise;
        }

        public long number(String key) {
            return get(key, Number.class).longValue();
        }

        public long number(String key, long otherwise) {
            return has(key) ? number(key) : otherwise;
        }

        public double decimal(String key) {
            return get(key, Number.class).doubleValue();
        }

        public double decimal(String key, double otherwise) {
            return has(key) ? decimal(key) : otherwise;
        }

        public boolean flag(String key, boolean otherwise) {
            return has(key) ? get(key, Boolean.class) : otherwise;
        }

        public List<String> texts(String key) {
            List<String> found = new ArrayList<>();
            for (Object item : get(key, List.class)) {
                found.add(String.valueOf(item));
            }
            return found;
        }

        /** A list of whole numbers; empty when there is none. */
        int[] integers(String key) {
            List<?> found = has(key) ? get(key, List.class) : List.of();
            return found.stream().mapToInt(each -> ((Number) each).intValue()).toArray();
        }

        /** A list of pairs of numbers; empty when there is none. */
        List<double[]> pairs(String key) {
            List<double[]> found = new ArrayList<>();
            for (Object pair : has(key) ? get(key, List.class) : List.of()) {
                List<?> numbers = (List<?>) pair;
                found.add(new double[] {
                    ((Number) numbers.get(0)).doubleValue(), ((Number) numbers.get(1)).doubleValue()
                });
            }
            return found;
        }

        /** A list of pairs of texts, in its order; empty when there is none. */
        Map<String, String> textPairs(String key) {
            Map<String, String> found = new LinkedHashMap<>();
            for (Object pair : has(key) ? get(key, List.class) : List.of()) {
                found.put((String) ((List<?>) pair).get(0), (String) ((List<?>) pair).get(1));
            }
            return found;
        }

        public Section section(String key) {
            return new Section(get(key, Map.class));
        }

        List<Section> sections(String key) {
            List<Section> found = new ArrayList<>();
            for (Object item : get(key, List.class)) {
                found.add(new Section((Map<?, ?>) item));
            }
            return found;
        }

        private <T> T get(String key, Class<T> type) {
            Object value = raw.get(key);
            if (!type.isInstance(value)) {
                throw new WorkerFailure(value == null
                        ? "the spec lacks " + key
                        : "the spec's " + key + " is " + value + ", which is no " + type.getSimpleName());
            }
            return type.cast(value);
        }
    }
}
