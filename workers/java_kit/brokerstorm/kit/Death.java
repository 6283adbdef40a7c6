package brokerstorm.kit;

/** Why a client takes nothing any more, in the words of docs/worker-protocol.md. */
public enum Death {
    /** It made an error of it. */
    ERROR,
    /** Another client has its name. */
    FENCED;

    String word() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }
}
