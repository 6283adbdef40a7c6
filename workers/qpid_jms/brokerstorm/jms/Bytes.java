package brokerstorm.jms;

import java.nio.charset.StandardCharsets;
import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.TextMessage;

/** The body of a message as bytes. */
final class Bytes {
    private static final byte[] NONE = {};

    private Bytes() {}

    static Message message(javax.jms.Session session, byte[] value) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(value);
        return message;
    }

    /** The body; of a kind that no worker sends: its text, or nothing. */
    static byte[] of(Message message) throws JMSException {
        if (message instanceof BytesMessage) {
            BytesMessage bytes = (BytesMessage) message;
            byte[] value = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(value);
            return value;
        }
        String text = message instanceof TextMessage ? ((TextMessage) message).getText() : null;
        return text == null ? NONE : text.getBytes(StandardCharsets.UTF_8);
    }
}
