package brokerstorm.pulsar;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Interruptions;
import brokerstorm.kit.Journal;
import brokerstorm.kit.Layout;
import brokerstorm.kit.MessagePosition;
import brokerstorm.kit.Session;
import java.util.ArrayDeque;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClientException;

/** The newest messages of the application's only partition, and its seeks back among them. On one thread. */
final class Replay {
    private final Session session;
    private final Journal journal;
    private final Interruptions interruptions;
    private final long back;
    private final ArrayDeque<MessageId> ids = new ArrayDeque<>();
    private final ArrayDeque<MessagePosition> places = new ArrayDeque<>();
    /** The newest message before a seek that failed: it may have moved the subscription all the same. */
    private MessagePosition inDoubtFrom;

    Replay(Session session, Journal journal) {
        this.session = session;
        this.journal = journal;
        this.interruptions = new Interruptions(session.spec.part, session.control);
        this.back = session.spec.part.section("seeks").number("back");
    }

    /** Seeks if it is time to; returns whether it did. */
    boolean seekIfDue(Consumer<byte[]> consumer) {
        if (interruptions.messagesBack() == 0 || ids.isEmpty()) {
            return false;
        }
        journal.note(Layout.SEEK, places.getFirst());
        try {
            consumer.seek(ids.getFirst());
        } catch (PulsarClientException error) {
            inDoubtFrom = places.getLast();
            session.report.error(error.getClass().getSimpleName(), "seek: " + ErrorTexts.text(error));
            return true;
        }
        session.report.event("seek", ids.size() + " messages back");
        forget();
        inDoubtFrom = null;
        return true;
    }

    /** To be called before the message is journaled. */
    void handedOver(MessageId id, MessagePosition place) {
        if (inDoubtFrom != null && Epochs.compare(place, inDoubtFrom) <= 0) {
            journal.note(Layout.SEEK, place);
            inDoubtFrom = null;
            forget();
        }
        ids.addLast(id);
        places.addLast(place);
        if (ids.size() > back) {
            ids.removeFirst();
            places.removeFirst();
        }
    }

    private void forget() {
        ids.clear();
        places.clear();
    }
}
