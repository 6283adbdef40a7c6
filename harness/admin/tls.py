"""TLS of the harness' own connections."""

from __future__ import annotations

import ssl

from harness.connections.security import Tls
from harness.errors import EnvironmentNotReady


def context_of(tls: Tls | None) -> ssl.SSLContext | None:
    """As the brokers are to be known; None = plain text.

    Raises:
        EnvironmentNotReady: a file that is not there, or not what it should be.
    """
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
        context.check_hostname = tls.check_host_name
        if tls.certificate:
            password = tls.key_password.reveal() if tls.key_password else None
            context.load_cert_chain(str(tls.certificate), str(tls.key), password)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(path) for path in (tls.ca, tls.certificate, tls.key) if path)
        raise EnvironmentNotReady(
            f"TLS: cannot use {named}: {error}",
            hint="name PEM files; tls.key must belong to tls.certificate",
        ) from None
    return context
