package brokerstorm.kit;

import java.util.Map;

/** Everything a role is run with: spec, commands, reporter, names. */
public final class Session {
    public final Spec spec;
    public final Control control;
    public final Reporter report;
    public final Names names;
    private final Map<String, String> versions;
    private final boolean isCheck;

    Session(
            Spec spec, Control control, Reporter report, Names names, Map<String, String> versions, boolean isCheck) {
        this.spec = spec;
        this.control = control;
        this.report = report;
        this.names = names;
        this.versions = versions;
        this.isCheck = isCheck;
    }

    /** Of a pipeline: as the producer or the consumer that is in it. */
    public Session half(String half) {
        return new Session(spec.half(half), control, report, names, versions, isCheck);
    }

    /** The client took its options, and no broker was asked yet: under {@code --check-options} the role ends here. */
    public void optionsTaken() {
        if (isCheck) {
            throw new OptionsTaken();
        }
    }

    /** Says that the next command can be obeyed. */
    public void ready() {
        report.ready(spec.library, versions);
    }
}
