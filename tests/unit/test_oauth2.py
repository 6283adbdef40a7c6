"""Tokens of an OAuth2 client, as an issuer gives them out over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from harness.admin.oauth2 import AccessToken
from harness.connections.secret import Secret
from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady

SECRET = "s3cr3t-of-storm"


class Issuer(BaseHTTPRequestHandler):
    """Gives a new token at each request for one, to who knows the secret."""

    given = 0
    lasts_s = 3600

    def _say(self, document: object, status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        assert self.path == "/.well-known/openid-configuration"
        self._say({"token_endpoint": f"http://{self.headers['Host']}/token"})

    def do_POST(self) -> None:
        said = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if (said["grant_type"], said["client_secret"]) != (["client_credentials"], [SECRET]):
            self._say({"error": "invalid_client"}, 401)
            return
        Issuer.given += 1
        self._say({"access_token": f"token-{Issuer.given}", "expires_in": Issuer.lasts_s})

    def log_message(self, *words: object) -> None: ...


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Issuer, "given", 0)
    monkeypatch.setattr(Issuer, "lasts_s", 3600)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def token(url: str, secret: str = SECRET) -> AccessToken:
    return AccessToken(Auth("oauth2", Secret(secret), token_url=url, client_id="storm"))


def test_a_token_is_used_until_it_is_nearly_over(url: str) -> None:
    asked = token(url)
    assert [asked(), asked()] == ["token-1", "token-1"]
    Issuer.lasts_s = 1  # less than what is left for a request
    soon_over = token(url)
    assert [soon_over(), soon_over()] == ["token-2", "token-3"]


def test_who_has_the_wrong_secret_is_told_whose_and_not_what(url: str) -> None:
    with pytest.raises(EnvironmentNotReady, match=f"no token of {url} for storm: .*401") as caught:
        token(url, "wr0ng-secret")()
    assert "wr0ng-secret" not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(EnvironmentNotReady, match="no token of"):
        token("http://127.0.0.1:1")()
