package brokerstorm.kit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * As much JSON as the protocol needs. Any library for it could clash with the one inside a client.
 *
 * <p>Objects are maps, arrays lists, numbers Long or Double.
 */
public final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /**
     * Reads one JSON value.
     *
     * @throws IllegalArgumentException the text is not JSON
     */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        json.skipSpace();
        if (json.at != text.length()) {
            throw json.wrong();
        }
        return value;
    }

    /** Writes maps, collections, numbers, booleans, null; anything else as its text. */
    public static String write(Object value) {
        StringBuilder out = new StringBuilder(256);
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            char next = '{';
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(next);
                quote(String.valueOf(entry.getKey()), out);
                out.append(':');
                write(entry.getValue(), out);
                next = ',';
            }
            out.append(next == '{' ? "{}" : "}");
        } else if (value instanceof Iterable) {
            char next = '[';
            for (Object item : (Iterable<?>) value) {
                out.append(next);
                write(item, out);
                next = ',';
            }
            out.append(next == '[' ? "[]" : "]");
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            quote(value.toString(), out);
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || Character.isSurrogate(c)) { // an unpaired surrogate has no UTF-8
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private Object value() {
        skipSpace();
        if (at == text.length()) {
            throw wrong();
        }
        switch (text.charAt(at)) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        if (taken('}')) {
            return found;
        }
        do {
            skipSpace();
            String name = string();
            expect(':');
            found.put(name, value());
        } while (taken(','));
        expect('}');
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        at++;
        if (taken(']')) {
            return found;
        }
        do {
            found.add(value());
        } while (taken(','));
        expect(']');
        return found;
    }

    private String string() {
        expect('"');
        StringBuilder out = new StringBuilder();
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            }
            out.append(c == '\\' ? escaped() : c);
        }
        throw wrong();
    }

    private char escaped() {
        if (at == text.length()) {
            throw wrong();
        }
        char c = text.charAt(at++);
        if (c == 'u' && at + 4 <= text.length()) {
            at += 4;
            return (char) Integer.parseInt(text.substring(at - 4, at), 16);
        }
        int known = "\"\\/bfnrt".indexOf(c);
        if (known < 0) {
            throw wrong();
        }
        return "\"\\/\b\f\n\r\t".charAt(known);
    }

    private Object number() {
        int begin = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(begin, at);
        try {
            if (digits.matches("-?[0-9]+")) {
                return Long.valueOf(digits);
            }
            return Double.valueOf(digits);
        } catch (NumberFormatException notOne) {
            at = begin;
            throw wrong();
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong();
        }
        at += word.length();
        return value;
    }

    private boolean taken(char c) {
        skipSpace();
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private void expect(char c) {
        if (!taken(c)) {
            throw wrong();
        }
    }

    private void skipSpace() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("not JSON at character " + at);
    }
}
