package brokerstorm.kit;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.zip.CRC32;

/** The payload of a message: a header of 48 bytes, filler, and a CRC-32 of everything before it. */
public final class Payload {
    static final VarHandle LONGS = view(long[].class);
    static final VarHandle INTS = view(int[].class);
    private static final VarHandle SHORTS = view(short[].class);
    /** CRC-32 of any bytes followed by their own CRC-32: one call checks a payload. */
    private static final int RESIDUE = 0x2144DF1C;
    private static final int VERSION = 1;
    /** Bytes that no codec makes smaller, which compressible payloads are cut from. */
    private static final int POOL_BYTES = 1 << 22;
    private static byte[] pool;

    private final int runTag;
    private final int instance;
    private final int least;
    private final int most;
    /** Sizes that are as frequent as one another; none = all from least to most. */
    private final int[] sizes;
    /** Thousandths that are zeros, the rest differs by message; -1 = the filling of all is alike. */
    private final int compressible;
    private final byte[] template;
    private final CRC32 crc = new CRC32();

    /**
     * Makes payloads of one producer; one thread uses it.
     *
     * @param least bytes of the smallest payload
     * @param most bytes of the largest
     * @param compressible thousandths of a payload that are zeros; -1 = all are filled alike
     * @throws WorkerFailure no room for header and trailer
     */
    public Payload(int runTag, int instance, int least, int most, int compressible, int... sizes) {
        if (least < Layout.MIN_PAYLOAD_BYTES || most < least) {
            throw new WorkerFailure("payload of " + least + ".." + most + " bytes: at least "
                    + Layout.MIN_PAYLOAD_BYTES + " are needed");
        }
        this.runTag = runTag;
        this.instance = instance;
        this.least = least;
        this.most = most;
        this.sizes = sizes;
        this.compressible = compressible;
        this.template = new byte[most];
        if (compressible >= 0) {
            makePool();
            return; // a template of zeros
        }
        int state = 1; // a linear congruential generator: the same filler in every language
        for (int i = Layout.HEADER_BYTES; i < most - 4; i++) {
            state = state * 1664525 + 1013904223;
            template[i] = (byte) (state >>> 24);
        }
    }

    /** One whole payload, in an array of its own: the client may keep it. */
    public byte[] encode(int kind, int lane, long seq, long intendedNs, int key, int attempt) {
        return encode(kind, lane, seq, intendedNs, key, attempt, 0, 0);
    }

    /** Of an output of a pipeline: it names partition and offset of its input. */
    byte[] encode(
            int kind, int lane, long seq, long intendedNs, int key, int attempt, int partition, long offset) {
        byte[] out = least == most ? template.clone() : Arrays.copyOf(template, size(lane, seq));
        if (compressible >= 0) {
            int room = out.length - Layout.MIN_PAYLOAD_BYTES;
            int own = room - (int) Math.min(room, (long) out.length * compressible / 1000);
            int at = (int) ((mixed(lane, seq) & 0xFFFFFFFFL) * (POOL_BYTES - own) >>> 32);
            System.arraycopy(pool, at, out, Layout.HEADER_BYTES, own);
        }
        return closed(out, kind, lane, seq, intendedNs, key, attempt, partition, offset);
    }

    /** One whole payload around a body of the user's shape. */
    byte[] around(byte[] body, int kind, int lane, long seq, long intendedNs, int key, int attempt) {
        byte[] out = new byte[Layout.MIN_PAYLOAD_BYTES + body.length];
        System.arraycopy(body, 0, out, Layout.HEADER_BYTES, body.length);
        return closed(out, kind, lane, seq, intendedNs, key, attempt, 0, 0);
    }

    /** Writes header and trailer around what is between them. */
    private byte[] closed(
            byte[] out, int kind, int lane, long seq, long intendedNs, int key, int attempt, int partition,
            long offset) {
        out[0] = 'B';
        out[1] = 'S';
        out[2] = VERSION;
        out[3] = (byte) kind;
        INTS.set(out, 4, runTag);
        INTS.set(out, 8, instance);
        INTS.set(out, 12, lane);
        LONGS.set(out, 16, seq);
        LONGS.set(out, 24, intendedNs);
        INTS.set(out, 32, key);
        SHORTS.set(out, 36, (short) attempt);
        SHORTS.set(out, 38, (short) partition);
        INTS.set(out, 40, out.length);
        INTS.set(out, 44, (int) offset);
        crc.reset();
        crc.update(out, 0, out.length - 4);
        INTS.set(out, out.length - 4, (int) crc.getValue());
        return out;
    }

    /** SHA-256 of 0, 1, 2 ... (32 bits, little-endian), one behind the other. */
    private static synchronized void makePool() {
        if (pool != null) {
            return;
        }
        try {
            MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
            byte[] number = new byte[4];
            byte[] made = new byte[POOL_BYTES];
            for (int at = 0; at < POOL_BYTES; at += 32) {
                INTS.set(number, 0, at / 32);
                System.arraycopy(sha256.digest(number), 0, made, at, 32);
            }
            pool = made;
        } catch (NoSuchAlgorithmException error) { // every Java platform has it
            throw new IllegalStateException(error);
        }
    }

    /** A number for one message, the same in every language (SplitMix64). */
    private long mixed(int lane, long seq) {
        long mixed = (seq + 1) * 0x9E3779B97F4A7C15L + ((long) instance << 32 | lane & 0xFFFFFFFFL);
        mixed = (mixed ^ mixed >>> 30) * 0xBF58476D1CE4E5B9L;
        mixed = (mixed ^ mixed >>> 27) * 0x94D049BB133111EBL;
        return mixed ^ mixed >>> 31;
    }

    /** Bytes of a message: the same in every attempt. */
    int size(int lane, long seq) {
        long mixed = mixed(lane, seq);
        if (sizes.length > 0) {
            return sizes[(int) ((mixed >>> 32) * sizes.length >>> 32)];
        }
        return least + (int) ((mixed >>> 32) * (most - least + 1) >>> 32);
    }

    /** Verdict on a payload that a reader found: CHECK_OK, CORRUPT, FOREIGN or OTHER_RUN. */
    public static int check(byte[] found, int runTag) {
        if (found.length < 2 || found[0] != 'B' || found[1] != 'S') {
            return Layout.FOREIGN;
        }
        if (found.length < Layout.MIN_PAYLOAD_BYTES || found[2] != VERSION || found[3] < 0 || found[3] > 2) {
            return Layout.CORRUPT;
        }
        CRC32 crc = new CRC32();
        crc.update(found, 0, found.length);
        if ((int) INTS.get(found, 40) != found.length || (int) crc.getValue() != RESIDUE) {
            return Layout.CORRUPT;
        }
        return (int) INTS.get(found, 4) == runTag ? Layout.CHECK_OK : Layout.OTHER_RUN;
    }

    /** Whether the harness and no producer wrote this message, of which {@link #check} said {@code check}. */
    public static boolean isProbe(byte[] found, int check) {
        return check == Layout.CHECK_OK && found[3] == Layout.PROBE;
    }

    private static VarHandle view(Class<?> array) {
        return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
    }
}
