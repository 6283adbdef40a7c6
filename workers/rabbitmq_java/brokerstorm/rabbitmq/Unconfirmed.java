package brokerstorm.rabbitmq;

import brokerstorm.kit.Control;
import brokerstorm.kit.Send;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;

/** Messages of one channel without a confirm, by the number that the client gave each. Safe on any thread. */
final class Unconfirmed {
    private static final long LOOK_MS = 20;

    private final Control control;
    private final NavigableMap<Long, Send> sends = new TreeMap<>();
    private boolean isEnded;

    Unconfirmed(Control control) {
        this.control = control;
    }

    /** Waits while there are {@code most} (0 = no limit); false if the channel is closed. */
    synchronized boolean awaitRoom(long most) {
        while (most > 0 && sends.size() >= most && !isEnded && !control.isOver()) {
            look();
        }
        return !isEnded;
    }

    /** Waits until every message has its confirm, or the channel is closed. */
    synchronized void awaitAll() {
        while (!sends.isEmpty() && !isEnded && !control.isOver()) {
            look();
        }
    }

    private void look() {
        try {
            wait(LOOK_MS);
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
            isEnded = true;
        }
    }

    /** Whether the message is awaited now; false = the channel is closed. */
    synchronized boolean add(long number, Send send) {
        if (!isEnded) {
            sends.put(number, send);
        }
        return !isEnded;
    }

    /** A message by its number, or all up to it. */
    synchronized List<Send> take(long number, boolean andEarlier) {
        List<Send> found = new ArrayList<>();
        if (andEarlier) {
            NavigableMap<Long, Send> covered = sends.headMap(number, true);
            found.addAll(covered.values());
            covered.clear();
        } else if (sends.containsKey(number)) {
            found.add(sends.remove(number));
        }
        notifyAll();
        return found;
    }

    /** The channel is closed: what had no confirm will never get one. */
    synchronized List<Send> end() {
        isEnded = true;
        List<Send> left = new ArrayList<>(sends.values());
        sends.clear();
        notifyAll();
        return left;
    }

    /** The client restored the channel, whose numbers begin with 1 again. */
    synchronized void restart() {
        isEnded = false;
    }
}
