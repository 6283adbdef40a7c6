package brokerstorm.jms;

import brokerstorm.kit.Spec;

/** Where the brokers are, out of {@code host:port,host:port/virtualhost?port_per_version}, and who asks them. */
final class Brokers {
    final String[] addresses;
    final String virtualHost;
    /** Each version of AMQP has a port that speaks no other. */
    final boolean portPerVersion;
    /** The worker's name and the tag of its run: on a cluster of others the harness knows its clients by it. */
    final String client;

    Brokers(Spec spec) {
        String[] parts = spec.bootstrap.split("/", 2);
        String[] rest = (parts.length > 1 ? parts[1] : "").split("\\?", 2);
        addresses = parts[0].split(",");
        virtualHost = rest[0];
        portPerVersion = rest.length > 1 && rest[1].equals("port_per_version");
        client = String.format("%s-%08x", spec.name, spec.runTag);
    }
}
