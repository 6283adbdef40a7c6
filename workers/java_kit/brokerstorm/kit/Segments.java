package brokerstorm.kit;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Makes the segments {@code <table>-<owner>-<index>.seg} of one table and owner, one after the other.
 *
 * <p>A row written into a shared mapping belongs to the kernel at once: killing the process loses nothing. Each
 * file is filled before it is mapped, so that a full disk is an error of {@link #next} and never a crash in the
 * middle of a row. A mapping lives as long as somebody holds one of its rows.
 */
public final class Segments {
    /** 6 MB of sends: a file every 1.3 s at 50,000 msg/s, and little waste for slow workers. */
    static final int DEFAULT_CAPACITY = 65_536;

    private static final byte[] ZEROS = new byte[1 << 16];

    private final Path folder;
    private final Layout.Table table;
    private final int owner;
    private final int runTag;
    private final int subscription;
    private final int capacity;
    private final AtomicInteger index;
    private MappedByteBuffer rows;
    private int at;

    /** @param subscription name id, for deliveries; else 0 */
    public Segments(Path folder, Layout.Table table, int owner, int runTag, int subscription) {
        this(folder, table, owner, runTag, subscription, DEFAULT_CAPACITY);
    }

    Segments(Path folder, Layout.Table table, int owner, int runTag, int subscription, int capacity) {
        this(folder, table, owner, runTag, subscription, capacity, new AtomicInteger());
    }

    private Segments(
            Path folder, Layout.Table table, int owner, int runTag, int subscription, int capacity,
            AtomicInteger index) {
        this.folder = folder;
        this.table = table;
        this.owner = owner;
        this.runTag = runTag;
        this.subscription = subscription;
        this.capacity = capacity;
        this.index = index;
    }

    /** Rows of the same table and owner for another thread, in files of its own. */
    Segments ofAnotherThread() {
        return new Segments(folder, table, owner, runTag, subscription, capacity, index);
    }

    /**
     * Moves on to a free row, in the next file when this one is full. Its place is {@link #rows} at {@link #at}.
     * One thread, or under one lock.
     *
     * @throws WorkerFailure the next file cannot be made (disk full, folder gone)
     */
    public void next() {
        at += table.rowBytes;
        if (rows == null || at == rows.capacity()) {
            rows = allocate(index.getAndIncrement());
            at = Layout.SEGMENT_HEADER_BYTES;
        }
    }

    public MappedByteBuffer rows() {
        return rows;
    }

    public int at() {
        return at;
    }

    /** Makes, fills, maps and only then names the file: a reader never meets a segment without a header. */
    private MappedByteBuffer allocate(int number) {
        Path path = folder.resolve(String.format("%s-%d-%06d.seg", table.files, owner, number));
        Path part = path.resolveSibling(path.getFileName() + ".part");
        int size = Layout.SEGMENT_HEADER_BYTES + table.rowBytes * capacity;
        try {
            MappedByteBuffer made;
            try (FileChannel file = FileChannel.open(
                    part, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                write(file, header(number));
                for (int left = size - Layout.SEGMENT_HEADER_BYTES; left > 0; left -= ZEROS.length) {
                    write(file, ByteBuffer.wrap(ZEROS, 0, Math.min(left, ZEROS.length)));
                }
                made = file.map(FileChannel.MapMode.READ_WRITE, 0, size);
            }
            Files.move(part, path, StandardCopyOption.ATOMIC_MOVE);
            made.order(ByteOrder.LITTLE_ENDIAN);
            return made;
        } catch (IOException error) {
            part.toFile().delete();
            throw new WorkerFailure(
                    "cannot write capture file " + path + ": " + ErrorTexts.reason(error),
                    "free disk space, or point --run-dir at another disk");
        }
    }

    private ByteBuffer header(int number) {
        ByteBuffer header = ByteBuffer.allocate(Layout.SEGMENT_HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        header.put("BSTORM1\0".getBytes(StandardCharsets.US_ASCII));
        header.putShort((short) table.number).putShort((short) table.rowBytes);
        header.putInt(owner).putInt(number).putInt(capacity).putInt(runTag).putInt(subscription);
        header.rewind();
        return header;
    }

    private static void write(FileChannel file, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            file.write(bytes);
        }
    }
}
