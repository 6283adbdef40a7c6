"""Access tokens of an OAuth2 client by its own credentials (RFC 6749, 4.4; metadata by RFC
8414)."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import urllib3

from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady
from harness.rundir import Document

_METADATA: Final = "/.well-known/openid-configuration"
_TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=10.0)
#: The life of a token that does not state it, and how long before that another one is fetched.
_LASTS_S, _EARLY_S = 60.0, 15.0


class AccessToken:
    """Called for a token that is good now; fetches one when there is none. Thread-safe.

    Args:
        auth: ``token_url`` is the issuer.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._pool = urllib3.PoolManager(retries=False)
        self._lock = threading.Lock()
        self._token, self._until_s = "", 0.0

    def __call__(self) -> str:
        """The token.

        Raises:
            EnvironmentNotReady: the issuer does not answer, or gives none.
        """
        with self._lock:
            if not self._token or time.monotonic() > self._until_s:
                found = self._fetched()
                self._token = str(found["access_token"])
                self._until_s = (
                    time.monotonic() + float(found.get("expires_in") or _LASTS_S) - _EARLY_S
                )
            return self._token

    def _fetched(self) -> Document:
        auth = self._auth
        about = self._ask("GET", auth.token_url.rstrip("/") + _METADATA)
        fields = {
            "grant_type": "client_credentials",
            "client_id": auth.client_id,
            "client_secret": auth.secret.reveal(),
            "scope": auth.scope,
            "audience": auth.audience,
        }
        given = {key: value for key, value in fields.items() if value}
        found = self._ask("POST", str(about.get("token_endpoint", "")), given)
        if not found.get("access_token"):
            raise self._refused("its answer has no access_token")
        return found

    def _ask(self, method: str, url: str, fields: dict[str, str] | None = None) -> Document:
        more: dict[str, Any] = {"fields": fields, "encode_multipart": False} if fields else {}
        try:
            answer = self._pool.request(method, url, timeout=_TIMEOUT, **more)
            found = answer.json() if answer.status < 300 else None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise self._refused(type(error).__name__) from None
        if not isinstance(found, dict):
            raise self._refused(f"{method} {url}: {answer.status}")
        return found

    def _refused(self, why: str) -> EnvironmentNotReady:
        return EnvironmentNotReady(
            f"no token of {self._auth.token_url} for {self._auth.client_id}: {why}",
            hint="look at token_url (the issuer), client_id and client_secret of the connection file",
        )
