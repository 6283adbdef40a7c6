package brokerstorm.kit;

import java.util.Locale;

/** An intended unit of order of one producer. */
public final class Lane {
    /** What keeps the lane's messages together. */
    public enum Mode {
        /** One partition, named in each send. */
        PARTITION,
        /** One message key. */
        KEY,
        /** One topic or queue; the client routes. */
        ROUTED;

        static Mode of(String text) {
            for (Mode mode : values()) {
                if (mode.name().toLowerCase(Locale.ROOT).equals(text)) {
                    return mode;
                }
            }
            throw new WorkerFailure("lane mode '" + text + "': must be partition, key or routed");
        }
    }

    public final int number;
    public final Spec.Topic topic;
    public final Mode mode;
    /** -1 leaves it to the client. */
    public final int partition;
    /** null leaves it out. */
    public final String key;
    public final int keyNumber;

    Lane(int number, Spec.Topic topic, Mode mode, int ordinal, String key) {
        this.number = number;
        this.topic = topic;
        this.mode = mode;
        this.partition = mode == Mode.PARTITION ? ordinal : -1;
        this.key = mode == Mode.KEY ? filled(key, ordinal) : null;
        this.keyNumber = mode == Mode.KEY ? ordinal : 0;
    }

    /** The text of a key with its places filled. */
    private static String filled(String key, int ordinal) {
        return key.replace("{key}", String.format("k%06d", ordinal)).replace("{number}", Integer.toString(ordinal));
    }
}
