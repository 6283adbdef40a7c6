package brokerstorm.kit;

import java.nio.file.FileSystemException;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Texts of exceptions, for error ids and messages. */
public final class ErrorTexts {
    private static final int LONGEST = 200;

    /** The longest first. */
    private static volatile List<String> secrets = List.of();

    private ErrorTexts() {}

    /** Texts that stand in nothing that this process writes down, from now on; the longest first. */
    static void hide(List<String> texts) {
        secrets = texts;
    }

    /** A text that may be written down: clients print their settings in errors. */
    static String withoutSecrets(String text) {
        String told = text;
        for (String secret : secrets) {
            told = told.replace(secret, "(secret)");
        }
        return told;
    }

    /** The exception that a future wrapped. */
    public static Throwable cause(Throwable error) {
        Throwable found = error;
        while ((found instanceof CompletionException || found instanceof ExecutionException)
                && found.getCause() != null) {
            found = found.getCause();
        }
        return found;
    }

    /**
     * Class and first line: the text behind an error id, without what differs from message to message, since
     * every text gets an id.
     */
    public static String text(Throwable error) {
        String name = error.getClass().getSimpleName();
        // Secrets first: of one with digits in it the next steps would leave a part.
        String line = withoutSecrets(String.valueOf(error.getMessage())).split("\n", 2)[0].trim();
        line = line.replaceAll("\\b(?=[a-f]*[0-9])[0-9a-f]{6,}\\b", "*"); // ids, as that of the run in a topic's name
        line = line.replaceAll("[0-9]+(\\.[0-9]+)?", "*").replaceAll("\"[^\"]*\"|'[^']*'", "'*'");
        return name + ": " + (line.length() > LONGEST ? line.substring(0, LONGEST) : line);
    }

    /** Why a file operation failed, in the system's words. */
    public static String reason(Exception error) {
        if (error instanceof FileSystemException && ((FileSystemException) error).getReason() != null) {
            return ((FileSystemException) error).getReason();
        }
        String name = error.getClass().getSimpleName();
        return error.getMessage() == null || error instanceof FileSystemException ? name : error.getMessage();
    }
}
