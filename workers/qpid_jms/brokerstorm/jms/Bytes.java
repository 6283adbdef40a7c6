package brokerstorm.jms;

import brokerstorm.kit.Template;
import java.nio.charset.StandardCharsets;
import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.TextMessage;

/** The payload of a message as bytes. */
final class Bytes {
    private static final byte[] NONE = {};

    private Bytes() {}

    static Message message(javax.jms.Session session, byte[] value) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(value);
        return message;
    }

    /** The body, with the identity of its properties if it does not have it itself. */
    static byte[] of(Message message) throws JMSException {
        byte[] body = body(message);
        return Template.isWhole(body) ? body : Template.joined(body, message.getStringProperty(Template.HEADER));
    }

    /** The body; of a kind that no worker sends: its text, or nothing. */
    private static byte[] body(Message message) throws JMSException {
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
