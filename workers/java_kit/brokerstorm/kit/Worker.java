package brokerstorm.kit;

import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;
import java.util.TreeSet;

/** The main function of every Java worker: spec in, role run, exit code out. */
public final class Worker {
    private static final int DONE = 0;
    private static final int USAGE = 2;
    private static final int ENVIRONMENT = 4;
    private static final int BUG = 70;

    /** A role returns when everything is captured. */
    public interface Role {
        void run(Session session) throws Exception;
    }

    private Worker() {}

    /**
     * Runs one worker process and ends it; never returns.
     *
     * @param versions {@code client_version} and whatever else the ready line shall say
     * @param clientErrors exceptions of the client that end a role with the client's own message
     */
    public static void main(
            String[] args, Map<String, Role> roles, Map<String, String> versions,
            Class<? extends Exception> clientErrors) {
        int code = run(args, roles, versions, clientErrors);
        System.err.flush();
        Temporary.remove();
        // Not exit: threads and shutdown hooks of a client that hangs must not keep the process.
        Runtime.getRuntime().halt(code);
    }

    private static int run(
            String[] args, Map<String, Role> roles, Map<String, String> versions,
            Class<? extends Exception> clientErrors) {
        if (args.length == 2 && args[0].equals("--self-test")) {
            Golden.write(Paths.get(args[1])).forEach(System.out::println);
            System.out.flush();
            return DONE;
        }
        boolean isCheck = args.length == 2 && args[0].equals("--check-options");
        if (!isCheck && (args.length != 1 || args[0].startsWith("-"))) {
            System.err.println("usage: worker [--check-options] SPEC.json | worker --self-test FOLDER");
            return USAGE;
        }
        Reporter report = new Reporter();
        try {
            play(Paths.get(args[args.length - 1]), roles, versions, report, isCheck);
        } catch (OptionsTaken nothingElse) {
            report.close();
            return DONE;
        } catch (WorkerFailure error) {
            report.close();
            report.error(error.name(), error.getMessage(), true, error.hint());
            return ENVIRONMENT;
        } catch (Throwable error) { // the last handler of this process: a crash must reach the harness
            report.close();
            error.printStackTrace();
            if (clientErrors.isInstance(error) || isMissingClass(error)) {
                String hint = isMissingClass(error)
                        ? "a jar is missing that the client needs, or is of another version (stderr.log)"
                        : "check the options and the client's log (stderr.log)";
                report.error(error.getClass().getSimpleName(), String.valueOf(error), true, hint);
                return ENVIRONMENT;
            }
            String hint = "a bug in the worker; see stderr.log";
            report.error(error.getClass().getSimpleName(), String.valueOf(error), true, hint);
            return BUG;
        }
        report.done();
        return DONE;
    }

    private static boolean isMissingClass(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof NoClassDefFoundError || cause instanceof ClassNotFoundException) {
                return true;
            }
        }
        return false;
    }

    private static void play(
            Path path, Map<String, Role> roles, Map<String, String> versions, Reporter report, boolean isCheck)
            throws Exception {
        Spec spec = Spec.read(path);
        Role role = roles.get(spec.role);
        if (role == null) {
            String known = String.join(", ", new TreeSet<>(roles.keySet()));
            throw new WorkerFailure("role '" + spec.role + "': " + spec.library + " has " + known);
        }
        Temporary.in(spec.folder);
        Control control = new Control();
        control.listen(report);
        report.start();
        Names names = new Names(spec.folder, spec.streams);
        role.run(new Session(spec, control, report, names, versions, isCheck));
    }
}
