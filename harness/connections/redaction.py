"""The last line of defence: known secrets, replaced in what others print before it is kept."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

from harness.connections.secret import HIDDEN

#: Half of all sentences contain shorter ones.
SHORTEST: Final = 4
#: Of base64, where a part of a secret is enough to be found by chance.
_SHORTEST_ENCODED: Final = 8


class SecretRemover:
    """Replaces secrets, as they are and as clients and formats write them.

    Of a secret of several lines (a key file) each line is one; armour lines (``-----BEGIN``) are
    none.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line.strip() for secret in secrets for line in (secret, *secret.splitlines())}
        forms = {form for line in lines if not line.startswith("-----") for form in _forms(line)}
        #: Longest first: one may be part of another.
        self.forms = sorted(
            (form for form in forms if len(form) >= SHORTEST), key=len, reverse=True
        )

    def text(self, said: str) -> str:
        """The text without secrets."""
        for form in self.forms:
            said = said.replace(form, HIDDEN)
        return said

    def printed(self, line: str) -> str:
        """A line that a worker printed; of its messages only some have texts of the client."""
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            return self.text(line)
        if message.get("type") not in ("error", "event"):
            return line
        clean = {**self.data(message), "type": message["type"]}
        return line if clean == message else json.dumps(clean) + "\n"

    def data(self, said: Any) -> Any:
        """JSON data whose texts have no secrets; keys stay."""
        if isinstance(said, dict):
            return {key: self.data(value) for key, value in said.items()}
        if isinstance(said, list):
            return [self.data(value) for value in said]
        return self.text(said) if isinstance(said, str) else said


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a secret may be printed: as it is and quoted (as in a JAAS
    configuration), each of these in JSON, in Python and in a URL, and in base64, as headers and
    data URLs have it.
    """
    escaped = secret.replace("\\", "\\\\")
    for text in (secret, escaped.replace('"', '\\"'), escaped.replace("'", "\\'")):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        yield quote(text, safe="")
        yield from _in_base64(text)
        yield from _in_base64(json.dumps(text)[1:-1])


def _in_base64(text: str) -> Iterator[str]:
    """The characters that mean nothing but this text, wherever it begins in a longer one."""
    content = text.encode(errors="surrogateescape")
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + content).decode().rstrip("=")
        is_cut = (shift + len(content)) % 3 > 0
        inner = whole[(0, 2, 3)[shift] : len(whole) - is_cut]
        if len(inner) >= _SHORTEST_ENCODED:
            yield inner
            yield inner.translate(str.maketrans("+/", "-_"))
