package brokerstorm.kit;

/** The worker cannot go on: shown as a fatal {@code error} line, then exit code 4. */
public final class WorkerFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final String hint;

    public WorkerFailure(String text) {
        this(text, "");
    }

    /** @param hint what the reader can do about it */
    public WorkerFailure(String text, String hint) {
        this("worker", text, hint);
    }

    /** @param name the class of the error, for the {@code name} field of its line */
    public WorkerFailure(String name, String text, String hint) {
        super(text);
        this.name = name;
        this.hint = hint;
    }

    public String name() {
        return name;
    }

    public String hint() {
        return hint;
    }
}
