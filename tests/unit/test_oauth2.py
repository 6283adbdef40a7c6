"""Tokens of an OAuth2 client, as an issuer gives them out over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from harness.admin.oauth2 import AccessToken
from harness.connections.secret import Secret
from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady
from tests.http_server import HOST, Answer, Request, answering

SECRET = "s3cr3t-of-storm"


class Issuer:
    """Gives a new token at each request for one, to who knows the secret."""

    given = 0
    lasts_s = 3600

    def answer(self, request: Request) -> Answer:
        if request.method == "GET":
            assert request.path == "/.well-known/openid-configuration"
            return 200, {"token_endpoint": f"http://{request.headers['Host']}/token"}, {}
        said = parse_qs(request.body.decode())
        if (said["grant_type"], said["client_secret"]) != (["client_credentials"], [SECRET]):
            return 401, {"error": "invalid_client"}, {}
        self.given += 1
        return 200, {"access_token": f"token-{self.given}", "expires_in": self.lasts_s}, {}


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def url(issuer: Issuer) -> Iterator[str]:
    with answering(issuer.answer) as port:
        yield f"http://{HOST}:{port}"


def token(url: str, secret: str = SECRET) -> AccessToken:
    return AccessToken(Auth("oauth2", Secret(secret), token_url=url, client_id="storm"))


def test_a_token_is_used_until_it_is_nearly_over(url: str, issuer: Issuer) -> None:
    asked = token(url)
    assert [asked(), asked()] == ["token-1", "token-1"]
    issuer.lasts_s = 1  # less than what is left for a request
    soon_over = token(url)
    assert [soon_over(), soon_over()] == ["token-2", "token-3"]


def test_who_has_the_wrong_secret_is_told_whose_and_not_what(url: str) -> None:
    with pytest.raises(EnvironmentNotReady, match=f"no token of {url} for storm: .*401") as caught:
        token(url, "wr0ng-secret")()
    assert "wr0ng-secret" not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(EnvironmentNotReady, match="no token of"):
        token("http://127.0.0.1:1")()
