package brokerstorm.pulsar;

import brokerstorm.kit.Json;
import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.AuthenticationFactory;
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
        Map<String, String> oauth2 = options.take("oauth2.");
        options.apply(conf, "serviceUrl", "serviceUrlProvider");
        if (!oauth2.isEmpty()) {
            conf.setAuthParams(oauth2Params(oauth2));
        }
        if (conf.getAuthPluginClassName() != null) { // the builder looks at the object only
            conf.setAuthentication(
                    AuthenticationFactory.create(conf.getAuthPluginClassName(), conf.getAuthParams()));
        }
        return new ClientBuilderImpl(conf).build();
    }

    /** Parameters of AuthenticationOAuth2, which takes the client's secret from a URL only. */
    private static String oauth2Params(Map<String, String> oauth2) {
        Map<String, String> key = new TreeMap<>();
        key.put("type", "client_credentials");
        key.put("client_id", oauth2.remove("client_id"));
        key.put("client_secret", oauth2.remove("client_secret"));
        byte[] text = Json.write(key).getBytes(StandardCharsets.UTF_8);
        oauth2.put("type", "client_credentials");
        oauth2.put("privateKey", "data:application/json;base64," + Base64.getEncoder().encodeToString(text));
        return Json.write(oauth2);
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
