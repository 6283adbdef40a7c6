package brokerstorm.kit;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Name ids of topic-partitions, as fast as one look-up. Safe on any thread. */
public final class StreamIds {
    private final Names names;
    private final Map<String, int[]> known = new ConcurrentHashMap<>();

    public StreamIds(Session session) {
        names = session.names;
    }

    /** The id of {@code topic-partition}; a stream the spec does not list is named on first sight. */
    public int id(String topic, int partition) {
        int[] ids = known.get(topic);
        if (ids != null && partition < ids.length && ids[partition] != 0) {
            return ids[partition];
        }
        int id = names.stream(topic + "-" + partition);
        known.compute(topic, (key, old) -> {
            int[] more = old == null ? new int[partition + 1] : Arrays.copyOf(old, Math.max(old.length, partition + 1));
            more[partition] = id;
            return more;
        });
        return id;
    }
}
