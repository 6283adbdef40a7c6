"""Security in the words of the two Kafka clients that the harness itself uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from harness.connections.secret import Secret
from harness.connections.security import Auth, Security, Tls


class _FixedToken(AbstractTokenProvider):  # type: ignore[misc]
    """The token of the connection, which is never renewed."""

    def __init__(self, secret: Secret) -> None:
        super().__init__()
        self._secret = secret

    def token(self) -> str:
        """Return the token that the scenario or the connection file gives."""
        return self._secret.reveal()


def admin_options(security: Security) -> dict[str, Any]:
    """For kafka-python."""
    tls, auth = security.tls, security.auth
    options = {"security_protocol": protocol(security), **(_python_tls(tls) if tls else {})}
    if auth is None:
        return options
    options["sasl_mechanism"] = auth.mechanism.upper()
    if auth.mechanism == "oauthbearer":
        return {**options, "sasl_oauth_token_provider": _FixedToken(auth.secret)}
    return {
        **options,
        "sasl_plain_username": auth.user,
        "sasl_plain_password": auth.secret.reveal(),
    }


def _python_tls(tls: Tls) -> dict[str, Any]:
    return {
        "ssl_check_hostname": tls.check_host_name,
        "ssl_cafile": _text(tls.ca),
        "ssl_certfile": _text(tls.certificate),
        "ssl_keyfile": _text(tls.key),
        "ssl_password": tls.key_password.reveal() if tls.key_password else None,
    }


def probe_options(security: Security) -> dict[str, Any]:
    """For librdkafka."""
    tls, auth = security.tls, security.auth
    options: dict[str, Any] = {"security.protocol": protocol(security)}
    if tls:
        options |= {
            "ssl.ca.location": _text(tls.ca),
            "ssl.certificate.location": _text(tls.certificate),
            "ssl.key.location": _text(tls.key),
            "ssl.key.password": tls.key_password.reveal() if tls.key_password else None,
            "ssl.endpoint.identification.algorithm": "https" if tls.check_host_name else "none",
        }
    if auth:
        options |= {"sasl.mechanism": auth.mechanism.upper(), **_rd_proof(auth)}
    return {key: value for key, value in options.items() if value is not None}


def _rd_proof(auth: Auth) -> dict[str, Any]:
    if auth.mechanism == "oauthbearer":
        return {"oauth_cb": lambda _: (auth.secret.reveal(), float("inf"))}
    return {"sasl.username": auth.user, "sasl.password": auth.secret.reveal()}


def protocol(security: Security) -> str:
    """Kafka's name of the listener's protocol."""
    if security.auth:
        return "SASL_SSL" if security.tls else "SASL_PLAINTEXT"
    return "SSL" if security.tls else "PLAINTEXT"


def _text(path: Path | None) -> str | None:
    return str(path) if path else None
