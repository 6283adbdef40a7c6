"""Keeps secrets out of a bundle: values of options named as secrets, wherever else they appear too.

Two passes. The first collects the values: of keys named as secrets in the JSON and YAML documents
of the run, of settings, options and headers written as ``name=value`` or ``name: value`` in any
text, and of the environment. The second replaces, in every file, each of these values wherever it
is, and everything that looks like a secret in its place. What is short or an ordinary word is
replaced only where its name is next to it: taking ``guest`` out of every log would take the log
apart.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from harness.rundir import json_object
from harness.yaml_lines import value_of

REDACTED: Final = "(redacted)"
#: Names of options and variables that hold a secret; found anywhere in a name, in any case.
_CORE: Final = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credential|jaas"
    r"|ssl[._-]?key(?!store[._-]?(?:location|type))"
    r"|(?:api|access|private|signing|encryption|sas)[._-]?key|auth(?:entication)?[._-]?param"
    r"|authorization|user[._-]?info|set-cookie|connection[._-]?string)"
)
_NAME: Final = re.compile(_CORE, re.IGNORECASE)
#: Variables of a shell that hold its folder, though passwords are called so, too.
_FOLDERS: Final = frozenset({"PWD", "OLDPWD"})
#: Endings of names that are about a secret and hold none: ``token.max.lifetime.ms``.
_ABOUT: Final = re.compile(
    r"(?:[._-](?i:ms|s|secs?|seconds|minutes|hours|days|bytes|size|count|max|min|length|keylength|interval"
    r"|timeout|enabled?|required|class|type|algorithm|provider|protocol|mechanisms?|iterations|id|location|path"
    r"|file|name|callback|handler|expiry|lifetime|jar)"
    r"|(?<=[a-z])(?:Ms|Secs|Seconds|Minutes|Hours|Days|Bytes|Size|Count|Max|Min|Length|Interval|Timeout|Enabled"
    r"|Required|Class|Type|Algorithm|Provider|Protocol|Mechanisms?|Ids?|Location|Path|File|Name|Handler|Expiry))$"
)
#: What replaces a secret in our own files, or is none.
_NOTHING: Final = frozenset(
    {"", "null", "none", "true", "false", "[hidden]", "nil", "***", REDACTED}
)
#: ``name = value`` in settings, command lines, environments, JSON and logs; the beginning of the
#: name is not needed. A value is quoted (quotes inside JSON strings are escaped) or extends to a
#: blank or a closing sign.
_PAIR: Final = re.compile(
    r"(?<!RequestHeader\()"  # of Kafka: its apiKey is the kind of a request
    rf"(?P<name>{_CORE}[\w.\-]{{0,64}})(?P<between>\\?[\"']?\s{{0,8}}(?:=>|->|[=:])\s{{0,8}}|[ ](?=[^\s=:-]))"
    r"(?P<value>\\\"(?:(?!\\\").)*\\\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|(?:Bearer|Basic|Negotiate)\s+\S+"
    r"|[^\s,;)}\]\"'&\\]+)",
    re.IGNORECASE,
)
#: A whole ``name=value`` in quotes, as a shell wants it: the value may hold blanks.
_QUOTED: Final = re.compile(
    rf"(?P<quote>['\"])(?P<before>[^'\"\n=]{{0,80}})(?P<name>{_CORE}[\w.\-]{{0,64}})(?P<between>=)"
    r"(?P<value>[^'\"\n]+)(?=(?P=quote))",
    re.IGNORECASE,
)
#: JAAS settings hold names and passwords in a language of their own: they go as a whole.
_JAAS: Final = re.compile(
    r"(?P<name>jaas[\w.\-]*\\?[\"']?\s*[=:]\s*)(?P<value>[^\n]*?required[^\n;]*;?)", re.IGNORECASE
)
_SHAPES: Final = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),  # JSON web tokens
    re.compile(r"(?<=://)[^\s/@:\"'<>]+:[^\s/@\"'<>]+(?=@)"),  # user:password@host
)
#: What a client is handed encoded: ``Basic dXNlcjpwYXNz``, ``data:application/json;base64,e30=``.
_BASE64: Final = re.compile(r"(?:Basic\s+|[\w:/;.+-]*;base64,)(?P<text>[\w+/-]+)=*", re.IGNORECASE)
#: Shorter values are replaced only next to their name.
_SHORTEST: Final = 6
#: So are these: they are words of every log.
_WORDS: Final = frozenset(
    (
        *(
            "broker",
            "brokers",
            "client",
            "producer",
            "consumer",
            "admin",
            "guest",
            "default",
            "public",
        ),
        *(
            "password",
            "passwd",
            "secret",
            "token",
            "tokens",
            "string",
            "object",
            "unknown",
            "required",
        ),
        *("optional", "private", "keystore", "truststore", "plaintext"),
    )
)


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret."""
    return bool(_NAME.search(name)) and not _ABOUT.search(name)


class Redactor:
    """Collects secrets (`collect`), then takes them out (`redacted`)."""

    def __init__(self, environment: Mapping[str, str], ordinary: Iterable[str] = ()) -> None:
        """``ordinary``: names of the run (topics, nodes, clients): no secrets, whoever uses them as
        one."""
        self._ordinary = _WORDS | {word.lower() for word in ordinary}
        self._secrets: set[str] = set()
        for name, value in environment.items():
            if is_secret(name) and name not in _FOLDERS:
                self._add(value)
        self._known: re.Pattern[str] | None = None

    # -- first pass

    def collect(self, name: str, text: str) -> None:
        """Note the secrets of a file; ``name`` tells its format."""
        if _NAME.search(text) is None:
            return
        for document in _documents(name, text):
            for value in _values(document):
                self._add(value)
        for pair in (*_QUOTED.finditer(text), *_PAIR.finditer(text)):
            if _holds(pair):
                self._add(_bare(pair["value"]))

    def _add(self, value: str) -> None:
        value = value.strip()
        for part in {value, *value.splitlines(), *_parts(value)}:
            if self._is_replaceable(part.strip()):
                self._secrets.add(part.strip())
        self._known = None

    def _is_replaceable(self, value: str) -> bool:
        low = value.lower()
        is_word = low in self._ordinary or low in _NOTHING or low.startswith("-----")
        return len(value) >= _SHORTEST and not is_word and not re.fullmatch(r"[\d.]+", value)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that are in no file that went through `redacted`."""
        return frozenset(self._secrets)

    # -- second pass

    def redacted(self, name: str, text: str) -> tuple[str, int]:
        """A file without secrets, and how many places of it changed.

        The values of a JSON document are changed one by one, so that it stays one.
        """
        if not self._may_hold(text):
            return text, 0
        counter = _Counter()
        if name.endswith(".json"):
            return self._json(text, counter, indent=1), counter.count
        if name.endswith(".jsonl"):
            lines = text.split("\n")
            made = [self._json(line, counter) if self._may_hold(line) else line for line in lines]
            return "\n".join(made), counter.count
        return self._plain(text, counter), counter.count

    def _may_hold(self, text: str) -> bool:
        known = self._pattern()
        return bool(
            _NAME.search(text)
            or (known and known.search(text))
            or any(shape.search(text) for shape in _SHAPES)
        )

    def _json(self, text: str, counter: _Counter, indent: int | None = None) -> str:
        try:
            document = json_object(text)
        except ValueError:  # no JSON, or none that we write
            return self._plain(text, counter)
        before = counter.count
        made = self._tree(document, counter)
        if counter.count == before:
            return text
        return json.dumps(made, indent=indent) + ("\n" if text.endswith("\n") else "")

    def _tree(self, node: Any, counter: _Counter, *, is_below_secret: bool = False) -> Any:
        if isinstance(node, dict):
            return {
                self._plain(str(key), counter): self._tree(
                    value, counter, is_below_secret=is_below_secret or is_secret(str(key))
                )
                for key, value in node.items()
            }
        if isinstance(node, list):
            return [self._tree(value, counter, is_below_secret=is_below_secret) for value in node]
        if is_below_secret and not isinstance(node, bool) and str(node).lower() not in _NOTHING:
            return counter.one()
        return self._plain(node, counter) if isinstance(node, str) else node

    def _plain(self, text: str, counter: _Counter) -> str:
        for shape in _SHAPES:
            text = shape.sub(lambda _: counter.one(), text)
        text = _JAAS.sub(lambda found: found["name"] + counter.one(), text)
        text = _QUOTED.sub(_redact_pair(counter), text)
        text = _PAIR.sub(_redact_pair(counter), text)
        known = self._pattern()
        return known.sub(lambda _: counter.one(), text) if known else text

    def _pattern(self) -> re.Pattern[str] | None:
        """Every secret in every way it may be written, the longest first."""
        if self._known is None and self._secrets:
            forms = {form for secret in self._secrets for form in written_forms(secret)}
            ranked = sorted(forms, key=lambda form: (-len(form), form))
            self._known = re.compile("|".join(map(re.escape, ranked)))
        return self._known


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def one(self) -> str:
        """Count a secret, and return the text that replaces it."""
        self.count += 1
        return REDACTED


def written_forms(secret: str) -> set[str]:
    """A secret as it is, in JSON, in a URL and in base64."""
    encoded = secret.encode(errors="surrogateescape")
    return {
        secret,
        json.dumps(secret)[1:-1],
        quote(encoded, safe=""),
        base64.b64encode(encoded).decode().rstrip("="),
    }


def _parts(secret: str, deeper: int = 3) -> Iterator[str]:
    """Yield the parts of a value that a client may print alone: the token of ``token:TOKEN``, the
    password of ``user:password``, of ``Basic BASE64`` and of JSON, and each value of
    ``name:value,name:value``.
    """
    if not deeper:
        return
    found: list[str] = []
    if secret.startswith("{"):
        found += [value for document in _documents(".json", secret) for value in _values(document)]
    elif all(":" in pair for pair in secret.split(",")):
        found += [pair.partition(":")[2] for pair in (secret, *secret.split(","))]
    if encoded := _BASE64.fullmatch(secret):
        with suppress(ValueError):  # some other text that looks so
            found.append(base64.b64decode(f"{encoded['text']}==").decode())
    for part in found:
        yield part
        yield from _parts(part, deeper - 1)


def _redact_pair(counter: _Counter) -> Callable[[re.Match[str]], str]:
    def redact(found: re.Match[str]) -> str:
        if not _holds(found):
            return found[0]
        value, start = found["value"], found.start("name") - found.start()
        quotes = next((q for q in ('\\"', '"', "'") if value.startswith(q)), "")
        kept = f"{found[0][:start]}{found['name']}{found['between']}"
        return f"{kept}{quotes}{counter.one()}{quotes}"

    return redact


def _holds(pair: re.Match[str]) -> bool:
    """Whether what follows the name is its secret. After a blank it is one only on a command
    line."""
    if _ABOUT.search(pair["name"]) or _bare(pair["value"]).lower() in _NOTHING:
        return False
    if pair["between"] != " ":
        return True
    line = pair.string.rfind("\n", 0, pair.start()) + 1
    word = re.split(r"[\s\"'=]", pair.string[max(line, pair.start() - 80) : pair.start()])[-1]
    return word.startswith("-") and not word.startswith("-D")


def _bare(value: str) -> str:
    for sign in ('\\"', '"', "'"):
        if value.startswith(sign) and value.endswith(sign) and len(value) >= 2 * len(sign):
            return value[len(sign) : -len(sign)]
    return re.sub(r"^(?:Bearer|Basic|Negotiate)\s+", "", value, flags=re.IGNORECASE)


def _documents(name: str, text: str) -> Iterator[Any]:
    """A file as data, where it is some."""
    try:
        if name.endswith(".json"):
            yield json_object(text)
        elif name.endswith((".yaml", ".yml")):
            yield value_of(text)
        elif name.endswith(".jsonl"):
            yield from (json_object(line) for line in text.split("\n") if _NAME.search(line))
    except (ValueError, RecursionError):
        return


def _values(node: Any, *, is_below_secret: bool = False) -> Iterator[str]:
    """The texts below keys that are named as secrets."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _values(value, is_below_secret=is_below_secret or is_secret(str(key)))
    elif isinstance(node, list):
        for value in node:
            yield from _values(value, is_below_secret=is_below_secret)
    elif is_below_secret and isinstance(node, str):
        yield node
