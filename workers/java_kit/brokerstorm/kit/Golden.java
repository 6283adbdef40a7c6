package brokerstorm.kit;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** {@code --self-test DIR}: files of fixed content, to compare with harness/contract/golden byte by byte. */
public final class Golden {
    private static final int RUN_TAG = 0xC0FFEE01;
    private static final int CAPACITY = 4;
    private static final long T_NS = 1_000_000_000_000L;
    private static final long SECOND_SEQ = (1L << 40) + 1;

    private Golden() {}

    /** For a test that has a JDK but no client library. */
    public static void main(String[] args) {
        write(Path.of(args[0]));
    }

    /** Writes every golden file into the folder; docs/worker-protocol.md lists the inputs. */
    static List<String> write(Path folder) {
        try {
            Files.createDirectories(folder);
            byte[] small = new Payload(RUN_TAG, 7, 52, 52, -1).encode(Layout.LOAD, 3, 42, T_NS, 0, 0);
            byte[] large = new Payload(RUN_TAG, 7, 150, 150, -1)
                    .encode(Layout.WARM_UP, 4, SECOND_SEQ, T_NS + 20_000, 17, 2);
            Files.write(folder.resolve("payload-52.bin"), small);
            Files.write(folder.resolve("payload-150.bin"), large);
            Files.write(folder.resolve("payload-60-90.bin"), eight(new Payload(RUN_TAG, 7, 60, 90, -1)));
            Payload mixed = new Payload(RUN_TAG, 7, 60, 90, -1, 60, 61, 61, 90);
            Files.write(folder.resolve("payload-mixed.bin"), eight(mixed));
            String order = "{'order': {'id': '{id}'}, 'n': {n}, 'key': '{key}', 'by': '{producer}/{lane}'}"
                    .replace('\'', '"');
            Files.write(folder.resolve("payload-template.bin"),
                    eightFrom(new Template(order, 7, StandardCharsets.UTF_8)));
            String bytes = IntStream.range(0, 256).mapToObj(Character::toString).collect(Collectors.joining());
            String encoded = bytes + "{id:24}{n:5}{lane:3}{producer:10}%d{n}";
            Files.write(folder.resolve("payload-encoded.bin"),
                    eightFrom(new Template(encoded, 7, StandardCharsets.ISO_8859_1)));
            Payload compressible = new Payload(RUN_TAG, 7, 60, 300, 600);
            Files.write(folder.resolve("payload-compressible.bin"), eight(compressible));
            Files.write(folder.resolve("due-times.bin"), dueTimes());
            Map<String, Integer> streams = new LinkedHashMap<>();
            streams.put("orders-0", 1);
            streams.put("orders-1", 2);
            Names names = new Names(folder, streams);
            int error = names.id("error", "_MSG_TIMED_OUT: Local: Message timed out");
            int group = names.id("subscription", "group");
            sends(folder, error);
            log(folder, small, large);
            deliveries(folder, group, small);
            transactions(folder, error);
            try (Stream<Path> files = Files.list(folder)) {
                return files.map(path -> path.getFileName().toString()).sorted().collect(Collectors.toList());
            }
        } catch (IOException error) {
            throw new WorkerFailure("cannot write the golden files: " + ErrorTexts.reason(error));
        }
    }

    private static byte[] eightFrom(Template template) throws IOException {
        Lane lane = new Lane(3, null, Lane.Mode.KEY, 5, "{key}");
        Payload payload = new Payload(RUN_TAG, 7, 52, 52, -1);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int seq = 0; seq < 8; seq++) {
            int attempt = seq / 6;
            byte[] body = template.body(lane, seq, attempt);
            out.write(payload.around(body, Layout.LOAD, 3, seq, T_NS + 20_000 * seq, 5, attempt));
        }
        return out.toByteArray();
    }

    private static byte[] eight(Payload payload) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (int seq = 0; seq < 8; seq++) {
            out.write(payload.encode(Layout.LOAD, 3, seq, T_NS + 20_000 * seq, 0, 0));
        }
        return out.toByteArray();
    }

    /** Of a schedule with a profile: messages in the warm-up and in all, then when each is due. */
    private static byte[] dueTimes() {
        List<double[]> profile = List.of(
                new double[] {500_000_000, 0.55},
                new double[] {700_000_000, 0.1},
                new double[] {300_000_000, 0},
                new double[] {333_333_333, 1},
                new double[] {666_666_667, 0.37});
        Schedule schedule = new Schedule(97.3, 0.5, 2, profile);
        schedule.begin(T_NS);
        ByteBuffer out = ByteBuffer.allocate((int) (8 * (2 + schedule.total))).order(ByteOrder.LITTLE_ENDIAN);
        out.putLong(schedule.warmUpCount).putLong(schedule.total);
        for (long i = 0; i < schedule.total; i++) {
            out.putLong(schedule.dueNs(i));
        }
        return out.array();
    }

    private static void sends(Path folder, int error) {
        Segments out = new Segments(folder, Layout.Table.SENDS, 7, RUN_TAG, 0, CAPACITY);
        out.next();
        Rows.openSend(out.rows(), out.at(), 3, 0, Layout.LOAD, 42, T_NS, T_NS + 1_500);
        Rows.closeSend(out.rows(), out.at(), T_NS + 9_000_000, new MessagePosition(1, 1234), 0);
        Rows.outcome(out.rows(), out.at(), Layout.OK);
        out.next();
        Rows.openSend(out.rows(), out.at(), 4, 2, Layout.WARM_UP, SECOND_SEQ, T_NS + 20_000, T_NS + 21_500);
        Rows.closeSend(out.rows(), out.at(), T_NS + 5_000_000_000L, new MessagePosition(), error);
        Rows.outcome(out.rows(), out.at(), Layout.INFO);
        Rows.lateOutcome(out.rows(), out.at(), Layout.OK);
        out.next(); // never answered
        Rows.openSend(out.rows(), out.at(), 3, 0, Layout.LOAD, 43, T_NS + 40_000, T_NS + 41_500);
    }

    private static void transactions(Path folder, int error) {
        Segments out = new Segments(folder, Layout.Table.TRANSACTIONS, 7, RUN_TAG, 0, CAPACITY);
        out.next();
        Rows.begun(out.rows(), out.at(), 1, 0, T_NS);
        Rows.askedAt(out.rows(), out.at(), T_NS + 2_000_000);
        Rows.asked(out.rows(), out.at(), Layout.COMMIT_ASKED);
        Rows.transactionDone(out.rows(), out.at(), T_NS + 9_000_000, 0, Layout.OK);
        out.next();
        Rows.begun(out.rows(), out.at(), 6, 1, T_NS + 10_000_000);
        Rows.askedAt(out.rows(), out.at(), T_NS + 20_000_000);
        Rows.asked(out.rows(), out.at(), Layout.COMMIT_ASKED | Layout.ABORT_ASKED);
        Rows.transactionDone(out.rows(), out.at(), T_NS + 30_000_000, error, Layout.ABORTED);
        out.next(); // nobody asked for its end
        Rows.begun(out.rows(), out.at(), 3, 0, T_NS + 40_000_000);
    }

    private static void log(Path folder, byte[] small, byte[] large) {
        byte[] broken = large.clone();
        broken[broken.length - 1] = '!';
        Segments out = new Segments(folder, Layout.Table.LOG, 1, RUN_TAG, 0, CAPACITY);
        found(out, 1, 1234, small);
        found(out, 1, 1235, broken);
        found(out, 2, 7, "hello".getBytes(StandardCharsets.US_ASCII));
    }

    private static void found(Segments out, int stream, long position, byte[] value) {
        MessagePosition place = new MessagePosition(stream, position);
        place.clientSeq = -1;
        out.next();
        Rows.log(out.rows(), out.at(), place, 1_700_000_000_123L, value, Payload.check(value, RUN_TAG));
    }

    private static void deliveries(Path folder, int group, byte[] small) {
        Segments out = new Segments(folder, Layout.Table.DELIVERIES, 2, RUN_TAG, group, CAPACITY);
        byte[] none = new byte[0];
        out.next();
        Rows.delivery(out.rows(), out.at(), Layout.ASSIGN, T_NS, new MessagePosition(1, -1), 1, 0, -1, none, 0);
        out.next();
        Rows.delivery(out.rows(), out.at(), Layout.DELIVER, T_NS + 1, new MessagePosition(1, 1234), 1, 0, -1, small, 0);
        out.next();
        Rows.delivery(out.rows(), out.at(), Layout.COMMIT, T_NS + 2, new MessagePosition(1, 1235), 1, 0, -1, none, 0);
    }
}
