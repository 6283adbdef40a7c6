package brokerstorm.jms;

import brokerstorm.kit.ErrorTexts;
import brokerstorm.kit.Session;
import brokerstorm.kit.WorkerFailure;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Map;

/** What the cluster asks of clients: options {@code secure.*} of the worker itself (worker.toml). */
final class Secured {
    static final String PREFIX = "secure.";
    /** A trust store must have a password; it protects certificates of authorities, which are public. */
    private static final String OF_STORE = "public";

    final String user;
    final String password;
    final boolean hasTls;
    final boolean anyHost;

    Secured(Session session, String otherwise) {
        Map<String, String> options = session.spec.options;
        user = options.getOrDefault(PREFIX + "user", otherwise);
        password = options.getOrDefault(PREFIX + "password", otherwise);
        hasTls = options.containsKey(PREFIX + "tls");
        anyHost = options.containsKey(PREFIX + "any_host");
        String ca = options.get(PREFIX + "ca");
        if (ca != null) {
            trust(Paths.get(ca), session.spec.folder.resolve("authorities.jks"));
        }
    }

    /** Every client of the family looks for its authorities there, unless it is told otherwise. */
    private static void trust(Path ca, Path store) {
        try (InputStream text = Files.newInputStream(ca); OutputStream out = Files.newOutputStream(store)) {
            KeyStore made = KeyStore.getInstance("JKS");
            made.load(null, null);
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(text)) {
                made.setCertificateEntry("authority-" + made.size(), each);
            }
            made.store(out, OF_STORE.toCharArray());
        } catch (IOException error) {
            throw new WorkerFailure("cannot read " + ca + ": " + ErrorTexts.reason(error));
        } catch (GeneralSecurityException error) {
            throw new WorkerFailure(ca + " holds no certificates: " + error.getMessage());
        }
        System.setProperty("javax.net.ssl.trustStore", store.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", OF_STORE);
        System.setProperty("javax.net.ssl.trustStoreType", "JKS");
    }
}
