package brokerstorm.kit;

import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Bodies in the user's shape: a text with places for the identity and the number of each message.
 *
 * <p>The identity travels in a header of the message: the payload of a plain message without what is between its
 * header and trailer. The body is what is between them. One thread uses a template.
 */
public final class Template {
    /** Name of the message header with the identity. */
    public static final String HEADER = "brokerstorm";
    private static final Pattern PLACE = Pattern.compile("\\{(id|n|key|lane|producer)(?::([1-9][0-9]?))?\\}");

    private final String text;
    private final int instance;
    /** Makes bytes of the text. With ISO-8859-1, a character is one byte. */
    private final Charset charset;
    /** By lane: the bytes around sequence numbers. */
    private final Map<Integer, List<Piece>> pieces = new HashMap<>();

    /** Bytes before a sequence number, and the width of the number; -1 = no number follows. */
    private static final class Piece {
        final byte[] bytes;
        final int width;

        Piece(byte[] bytes, int width) {
            this.bytes = bytes;
            this.width = width;
        }
    }

    Template(String text, int instance, Charset charset) {
        this.text = text;
        this.instance = instance;
        this.charset = charset;
    }

    /** The body of one message. */
    byte[] body(Lane lane, long seq, int attempt) {
        String number = Long.toUnsignedString(seq);
        if (attempt > 0) {
            return filled(lane, number + "." + attempt, number).getBytes(charset);
        }
        List<Piece> around = pieces.computeIfAbsent(lane.number, unknown -> around(lane));
        byte[] digits = number.getBytes(StandardCharsets.US_ASCII);
        int length = 0;
        for (Piece piece : around) {
            length += piece.bytes.length + (piece.width < 0 ? 0 : Math.max(piece.width, digits.length));
        }
        byte[] body = new byte[length];
        int at = 0;
        for (Piece piece : around) {
            System.arraycopy(piece.bytes, 0, body, at, piece.bytes.length);
            at += piece.bytes.length;
            if (piece.width >= 0) {
                int end = at + Math.max(piece.width, digits.length);
                Arrays.fill(body, at, end - digits.length, (byte) '0');
                System.arraycopy(digits, 0, body, end - digits.length, digits.length);
                at = end;
            }
        }
        return body;
    }

    /** The bytes before, between and after the sequence numbers of a lane's bodies. */
    private List<Piece> around(Lane lane) {
        List<Piece> found = new ArrayList<>();
        StringBuilder out = new StringBuilder();
        Matcher place = PLACE.matcher(text);
        int done = 0;
        while (place.find()) {
            out.append(text, done, place.start());
            done = place.end();
            String name = place.group(1);
            if (name.equals("id") || name.equals("n")) {
                String before = name.equals("id") ? id(lane) : "";
                out.append(before);
                int width = Math.max(0, width(place) - before.length());
                found.add(new Piece(out.toString().getBytes(charset), width));
                out.setLength(0);
            } else {
                out.append(padded(fixed(lane, name), width(place)));
            }
        }
        out.append(text, done, text.length());
        found.add(new Piece(out.toString().getBytes(charset), -1));
        return found;
    }

    private String filled(Lane lane, String inLane, String number) {
        StringBuilder out = new StringBuilder();
        Matcher place = PLACE.matcher(text);
        int done = 0;
        while (place.find()) {
            out.append(text, done, place.start());
            done = place.end();
            String name = place.group(1);
            if (name.equals("id")) {
                out.append(id(lane)).append(padded(inLane, width(place) - id(lane).length()));
            } else {
                out.append(padded(name.equals("n") ? number : fixed(lane, name), width(place)));
            }
        }
        return out.append(text, done, text.length()).toString();
    }

    /** The text of a place that is the same in every message of a lane. */
    private String fixed(Lane lane, String name) {
        if (name.equals("key")) {
            return lane.key == null ? "" : lane.key;
        }
        return Integer.toUnsignedString(name.equals("lane") ? lane.number : instance);
    }

    private static int width(Matcher place) {
        return place.group(2) == null ? 0 : Integer.parseInt(place.group(2));
    }

    private static String padded(String text, int width) {
        return "0".repeat(Math.max(0, width - text.length())) + text;
    }

    private String id(Lane lane) {
        return Integer.toUnsignedString(instance) + "/" + Integer.toUnsignedString(lane.number) + "/";
    }

    /** What is sent as the value of a message. */
    public static byte[] body(byte[] payload) {
        return Arrays.copyOfRange(payload, Layout.HEADER_BYTES, payload.length - trailerBytes());
    }

    /** What is sent in the header of a message. */
    public static byte[] identity(byte[] payload) {
        byte[] out = Arrays.copyOf(payload, Layout.MIN_PAYLOAD_BYTES);
        System.arraycopy(payload, payload.length - trailerBytes(), out, Layout.HEADER_BYTES, trailerBytes());
        return out;
    }

    /** Whether a message has its identity in its value. */
    public static boolean isWhole(byte[] value) {
        return value.length >= 2 && value[0] == 'B' && value[1] == 'S';
    }

    /** The payload that was sent, of its body and what its header holds; the body alone if this is no identity. */
    public static byte[] joined(byte[] body, byte[] identity) {
        if (identity == null || identity.length != Layout.MIN_PAYLOAD_BYTES) {
            return body;
        }
        byte[] out = Arrays.copyOf(identity, identity.length + body.length);
        System.arraycopy(body, 0, out, Layout.HEADER_BYTES, body.length);
        System.arraycopy(identity, Layout.HEADER_BYTES, out, out.length - trailerBytes(), trailerBytes());
        return out;
    }

    /** The same of an identity in base64, where headers are texts; null = there is none. */
    public static byte[] joined(byte[] body, String identity) {
        if (isWhole(body) || identity == null) {
            return body;
        }
        try {
            return joined(body, Base64.getDecoder().decode(identity));
        } catch (IllegalArgumentException notBase64) {
            return body;
        }
    }

    private static int trailerBytes() {
        return Layout.MIN_PAYLOAD_BYTES - Layout.HEADER_BYTES;
    }
}
