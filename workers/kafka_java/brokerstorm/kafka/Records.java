package brokerstorm.kafka;

import brokerstorm.kit.Template;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** Payloads of records. */
final class Records {
    private Records() {
    }

    /** The payload as it was sent: the value, or a body with the identity of its header. */
    static byte[] payload(ConsumerRecord<byte[], byte[]> record) {
        byte[] value = record.value() == null ? new byte[0] : record.value();
        if (Template.isWhole(value)) {
            return value;
        }
        Header identity = record.headers().lastHeader(Template.HEADER);
        return identity == null ? value : Template.joined(value, identity.value());
    }
}
