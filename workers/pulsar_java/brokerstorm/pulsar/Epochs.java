package brokerstorm.pulsar;

import brokerstorm.kit.MessagePosition;
import java.util.HashMap;
import java.util.Map;

/**
 * Decides, stream by stream, which message is the first of a new connection.
 *
 * <p>Messages that the client prefetched over the connection that was lost are handed over after the loss too, and with
 * several topics even after the reconnect: a consumer of several topics does not clear the queue that they share. They
 * belong to the epoch before. What the broker sends again begins at or before a message that was handed over already:
 * the first message that goes back begins the new epoch. Without one, the epoch begins when everything that waited in
 * the client at the reconnect was handed over. One loss explains one step back, so a message that is out of order
 * within a connection is still seen.
 */
final class Epochs {
    /** Messages on their way from a queue of the client to the application, which no queue counts. */
    private static final int ON_THE_WAY = 100;
    private static final long NOT_CONNECTED = -1;

    private final boolean isOrdered;
    private final Map<Integer, Stream> streams = new HashMap<>();
    private long handedOver;

    private static final class Stream {
        /** Connections that were lost and whose successor has not begun an epoch yet. */
        int losses;
        /** Number of the hand-over after which nothing is left that came before the reconnect. */
        long lastOld = NOT_CONNECTED;
        MessagePosition highest;
    }

    /** @param isOrdered whether the subscription gives the messages of a stream in the order of the log */
    Epochs(boolean isOrdered) {
        this.isOrdered = isOrdered;
    }

    synchronized void lost(int stream) {
        Stream found = stream(stream);
        found.losses++;
        found.lastOld = NOT_CONNECTED;
    }

    /** @param waiting messages that lie in the client, of whatever stream and connection */
    synchronized void reconnected(int stream, int waiting) {
        Stream found = stream(stream);
        if (found.losses > 0 && found.lastOld == NOT_CONNECTED) {
            found.lastOld = handedOver + waiting + ON_THE_WAY;
        }
    }

    /** Whether a lost connection of the stream has a successor that is not seen yet. */
    synchronized boolean awaits(int stream) {
        Stream found = stream(stream);
        return found.losses > 0 && found.lastOld == NOT_CONNECTED;
    }

    /** A message is handed over now; returns whether a new epoch of its stream begins with it. */
    synchronized boolean begins(MessagePosition place) {
        handedOver++;
        Stream stream = stream(place.stream);
        boolean isBack = stream.highest != null && compare(place, stream.highest) <= 0;
        boolean isOver = stream.lastOld != NOT_CONNECTED && handedOver > stream.lastOld;
        boolean begins = stream.losses > 0 && (isBack || isOver);
        if (begins && isOver) {
            stream.losses = 0;
        } else if (begins && isOrdered) { // else refused messages may go back as well
            stream.losses--;
        }
        if (begins || !isBack) {
            stream.highest = place;
        }
        return begins;
    }

    private Stream stream(int number) {
        return streams.computeIfAbsent(number, id -> new Stream());
    }

    /** Which of two places of a stream comes first in the log: negative, 0 or positive. */
    static int compare(MessagePosition one, MessagePosition other) {
        int found = Long.compare(one.ledger, other.ledger);
        found = found != 0 ? found : Long.compare(one.position, other.position);
        return found != 0 ? found : Integer.compare(one.batch, other.batch);
    }
}
