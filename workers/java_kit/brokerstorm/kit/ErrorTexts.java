package brokerstorm.kit;

import java.nio.file.FileSystemException;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Texts of exceptions, for error ids and messages. */
public final class ErrorTexts {
    private static final int LONGEST = 200;
    private static final int SHORTEST_ID = 6;

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
        return name + ": " + withoutVarying(line);
    }

    /**
     * At most {@link #LONGEST} characters of a line, with {@code *} for what differs from message to message: numbers,
     * ids in hexadecimal (that of the run in a topic's name) and what stands in quotes.
     *
     * <p>One pass and no regular expression: thousands of sends fail at once when a broker dies.
     */
    private static String withoutVarying(String line) {
        StringBuilder text = new StringBuilder(LONGEST + 3);
        int at = 0;
        while (at < line.length() && text.length() < LONGEST) {
            char first = line.charAt(at);
            int end;
            if ((first == '"' || first == '\'') && line.indexOf(first, at + 1) > 0) {
                text.append("'*'");
                at = line.indexOf(first, at + 1) + 1;
            } else if ((end = endOfId(line, at)) > at || (end = endOfNumber(line, at)) > at) {
                text.append('*');
                at = end;
            } else {
                text.append(first);
                at++;
            }
        }
        text.setLength(Math.min(text.length(), LONGEST));
        return text.toString();
    }

    /** Where the id ends that begins at {@code at}; {@code at} when none does. It is a word of its own. */
    private static int endOfId(String line, int at) {
        if (at > 0 && isWord(line.charAt(at - 1))) {
            return at;
        }
        int end = at;
        boolean hasDigit = false;
        while (end < line.length() && isHexadecimal(line.charAt(end))) {
            hasDigit |= isDigit(line.charAt(end));
            end++;
        }
        boolean isWhole = end == line.length() || !isWord(line.charAt(end));
        return hasDigit && isWhole && end - at >= SHORTEST_ID ? end : at;
    }

    /** Where the number ends that begins at {@code at}, with its decimals; {@code at} when none does. */
    private static int endOfNumber(String line, int at) {
        int end = endOfDigits(line, at);
        if (end == at || end == line.length() || line.charAt(end) != '.' || endOfId(line, end + 1) > end + 1) {
            return end;
        }
        int decimals = endOfDigits(line, end + 1);
        return decimals > end + 1 ? decimals : end;
    }

    private static int endOfDigits(String line, int at) {
        int end = at;
        while (end < line.length() && isDigit(line.charAt(end))) {
            end++;
        }
        return end;
    }

    private static boolean isDigit(char each) {
        return each >= '0' && each <= '9';
    }

    private static boolean isHexadecimal(char each) {
        return isDigit(each) || (each >= 'a' && each <= 'f');
    }

    private static boolean isWord(char each) {
        return isDigit(each) || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || each == '_';
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
