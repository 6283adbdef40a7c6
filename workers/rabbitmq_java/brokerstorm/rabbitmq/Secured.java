package brokerstorm.rabbitmq;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.WorkerFailure;
import com.rabbitmq.client.ConnectionFactory;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Applies what the cluster requires of clients: options {@code secure.*} of the worker itself (worker.toml). */
final class Secured {
    static final String PREFIX = "secure.";
    private static final String GUEST = "guest";

    private Secured() {}

    /** Sets user, password and TLS of connections; without options it is the guest of a cluster of ours. */
    static void apply(ConnectionFactory factory, Map<String, String> options) {
        factory.setUsername(options.getOrDefault(PREFIX + "user", GUEST));
        factory.setPassword(options.getOrDefault(PREFIX + "password", GUEST));
        if (!options.containsKey(PREFIX + "tls")) {
            return;
        }
        String ca = options.get(PREFIX + "ca");
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(ca == null ? null : authorities(Paths.get(ca)));
            context.init(null, trust.getTrustManagers(), null);
            factory.useSslProtocol(context);
            if (!options.containsKey(PREFIX + "any_host")) {
                factory.enableHostnameVerification();
            }
        } catch (GeneralSecurityException error) {
            throw new WorkerFailure(
                    "amqp-client: TLS: " + error.getMessage(), "check tls of the connection file");
        }
    }

    private static KeyStore authorities(Path ca) throws GeneralSecurityException {
        try (InputStream text = Files.newInputStream(ca)) {
            KeyStore made = KeyStore.getInstance(KeyStore.getDefaultType());
            made.load(null, null);
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(text)) {
                made.setCertificateEntry("authority-" + made.size(), each);
            }
            return made;
        } catch (IOException error) {
            throw new WorkerFailure("cannot read " + ca + ": " + ErrorTexts.reason(error));
        }
    }
}
