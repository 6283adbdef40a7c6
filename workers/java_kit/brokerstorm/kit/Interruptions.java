package brokerstorm.kit;

/** The times at which a consuming application pauses, resumes and seeks back: while the load lasts. */
public final class Interruptions {
    private final Control control;
    private final long pauseEveryNs;
    private final long pauseForNs;
    private final long seekEveryNs;
    private final long back;
    private long seeksDone;

    /** @param part a consumer's part of the spec; without {@code pauses} and {@code seeks} nothing is ever due */
    public Interruptions(Spec.Section part, Control control) {
        this.control = control;
        boolean pauses = part.has("pauses");
        boolean seeks = part.has("seeks");
        this.pauseEveryNs = pauses ? nanoseconds(part.section("pauses"), "every_s") : 0;
        this.pauseForNs = pauses ? nanoseconds(part.section("pauses"), "for_s") : 0;
        this.seekEveryNs = seeks ? nanoseconds(part.section("seeks"), "every_s") : 0;
        this.back = seeks ? part.section("seeks").number("back") : 0;
    }

    private static long nanoseconds(Spec.Section section, String key) {
        return (long) (section.decimal(key) * 1e9);
    }

    /** Whether the application reads nothing at this moment. */
    public boolean isPaused() {
        long into = intoLoadNs();
        return pauseEveryNs > 0 && into >= pauseEveryNs && into % pauseEveryNs < pauseForNs;
    }

    /** How many messages of each partition to read again now; 0 = no seek is due. Each seek is due once. */
    public long messagesBack() {
        long passed = seekEveryNs > 0 ? intoLoadNs() / seekEveryNs : 0;
        if (passed <= seeksDone) {
            return 0;
        }
        seeksDone = passed;
        return back;
    }

    /** Since the start of the load; 0 before it and after its end. */
    private long intoLoadNs() {
        long t0 = control.t0Ns();
        return t0 == 0 || control.isLoadStopped() ? 0 : Math.max(System.nanoTime() - t0, 0);
    }
}
