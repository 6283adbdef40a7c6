package brokerstorm.jms;

import brokerstorm.kit.Layout;
import javax.jms.InvalidDestinationException;
import javax.jms.MessageFormatException;

/**
 * Outcome of a send by its exception (JMS 1.1, chapter 11 and 4.4.13).
 *
 * <p>A transaction whose commit failed may have been committed before the answer was lost: unknown, whatever the
 * exception is called.
 */
final class Outcomes {
    private Outcomes() {}

    /** Of a call of send. */
    static int ofSend(Exception error) {
        boolean refused = error instanceof InvalidDestinationException || error instanceof MessageFormatException;
        return refused ? Layout.FAIL : Layout.INFO;
    }
}
