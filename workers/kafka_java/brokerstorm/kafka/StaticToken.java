package brokerstorm.kafka;

import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Logs in with the token of the JAAS option {@code token}, the same one whenever the client asks. */
public final class StaticToken implements AuthenticateCallbackHandler {
    private static final long HELD_MS = 3_600_000;

    private String token;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        token = String.valueOf(entries.get(0).getOptions().get("token"));
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (!(callback instanceof OAuthBearerTokenCallback)) {
                throw new UnsupportedCallbackException(callback);
            }
            ((OAuthBearerTokenCallback) callback).token(new Token(token));
        }
    }

    @Override
    public void close() {}

    private static final class Token implements OAuthBearerToken {
        private final String text;
        private final long startMs = System.currentTimeMillis();

        Token(String text) {
            this.text = text;
        }

        @Override
        public String value() {
            return text;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return startMs + HELD_MS;
        }

        @Override
        public String principalName() {
            return "brokerstorm";
        }

        @Override
        public Long startTimeMs() {
            return startMs;
        }
    }
}
