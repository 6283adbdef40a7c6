package brokerstorm.kit;

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
    private static final Pattern PLACE = Pattern.compile("\\{(id|n|key|lane|producer)\\}");

    private final String text;
    private final int instance;
    /** By lane: the bytes around sequence numbers. */
    private final Map<Integer, byte[][]> pieces = new HashMap<>();

    Template(String text, int instance) {
        this.text = text;
        this.instance = instance;
    }

    /** The body of one message. */
    byte[] body(Lane lane, long seq, int attempt) {
        String number = Long.toUnsignedString(seq);
        if (attempt > 0) {
            return filled(lane, number + "." + attempt, number).getBytes(StandardCharsets.UTF_8);
        }
        byte[][] around = pieces.computeIfAbsent(lane.number, unknown -> around(lane));
        byte[] digits = number.getBytes(StandardCharsets.US_ASCII);
        int length = digits.length * (around.length - 1);
        for (byte[] piece : around) {
            length += piece.length;
        }
        byte[] body = Arrays.copyOf(around[0], length);
        int at = around[0].length;
        for (int i = 1; i < around.length; i++) {
            System.arraycopy(digits, 0, body, at, digits.length);
            at += digits.length;
            System.arraycopy(around[i], 0, body, at, around[i].length);
            at += around[i].length;
        }
        return body;
    }

    /** The bytes before, between and after the sequence numbers of a lane's bodies. */
    private byte[][] around(Lane lane) {
        List<byte[]> found = new ArrayList<>();
        for (String piece : filled(lane, "\0", "\0").split("\0", -1)) { // no template has this character
            found.add(piece.getBytes(StandardCharsets.UTF_8));
        }
        return found.toArray(new byte[0][]);
    }

    private String filled(Lane lane, String inLane, String number) {
        Map<String, String> places = Map.of(
                "id", id(lane) + inLane, "n", number, "key", lane.key == null ? "" : lane.key,
                "lane", Integer.toUnsignedString(lane.number), "producer", Integer.toUnsignedString(instance));
        Matcher place = PLACE.matcher(text);
        StringBuilder out = new StringBuilder();
        int done = 0;
        while (place.find()) {
            out.append(text, done, place.start()).append(places.get(place.group(1)));
            done = place.end();
        }
        return out.append(text, done, text.length()).toString();
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
