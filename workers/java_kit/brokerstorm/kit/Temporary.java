package brokerstorm.kit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** Where libraries unpack what they bring in C: in the worker's folder, for nobody removes it after a halt. */
final class Temporary {
    private static Path folder;

    private Temporary() {}

    /** Before the client's first class: Java looks once where temporary files go. */
    static void in(Path worker) throws IOException {
        folder = Files.createDirectories(worker.toAbsolutePath().resolve("tmp"));
        System.setProperty("java.io.tmpdir", folder.toString());
    }

    /** Removes what is there; what cannot be removed stays in the worker's folder. */
    static void remove() {
        if (folder == null) {
            return;
        }
        try (Stream<Path> found = Files.walk(folder)) {
            for (Path path : (Iterable<Path>) found.sorted(Comparator.reverseOrder())::iterator) {
                Files.deleteIfExists(path);
            }
        } catch (IOException | UncheckedIOException error) {
            System.err.println("cannot remove " + folder + ": " + ErrorTexts.reason(error));
        }
    }
}
