package brokerstorm.pulsar;

import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.ClientBuilderImpl;
import org.apache.pulsar.client.impl.conf.ClientConfigurationData;

/** One PulsarClient of a worker: made from the options, closed without waiting for a dead broker. */
final class Clients {
    private static final long CLOSE_S = 5;

    private Clients() {}

    /** The options that are left, after the client took its own, are the role's. */
    static PulsarClient make(Session session, Options options) throws PulsarClientException {
        ClientConfigurationData conf = new ClientConfigurationData();
        conf.setServiceUrl(session.spec.bootstrap);
        options.apply(conf, "serviceUrl", "serviceUrlProvider");
        return new ClientBuilderImpl(conf).build();
    }

    static void refuseOthers(Options options) {
        options.refuseOthers(PulsarVersion.getVersion());
    }

    /** What a future of the client gives; its own exception when it fails. */
    static <T> T result(CompletableFuture<T> future, String what) throws Exception {
        try {
            return future.get();
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            String words = String.valueOf(cause.getMessage()).replaceAll("([a-z]+\\.)+[A-Z][A-Za-z$]*: ", "");
            throw new WorkerFailure(
                    cause.getClass().getSimpleName(), what + ": " + words,
                    "check the options, the topic and the client's log (stderr.log)");
        }
    }

    static void close(PulsarClient client) {
        try {
            client.closeAsync().get(CLOSE_S, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            System.err.println("closing the client: " + error);
        }
    }
}
