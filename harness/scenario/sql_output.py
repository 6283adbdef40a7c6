"""Checks of the key ``to: {sql: ...}``: a query over a database that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: The one place of a URL: a folder that all instances share.
SHARED: Final = "{shared}"
#: The one parameter of a query: the name of the consumer group, which differs in every run.
GROUP: Final = "group"
_URL: Final = re.compile(r"[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*)?://\S*")
#: A password as SQLAlchemy reads it out of a URL: before the last @, after the user's name.
_PASSWORD: Final = re.compile(r"://[^:/]*:[^@]*@")
_SECRET_KEY: Final = re.compile(r"[?&]([^=&]*(?:pass|pwd|secret|token)[^=&]*)=", re.IGNORECASE)
#: A parameter as SQLAlchemy reads it out of a query; ``::`` is a cast, ``\:`` a colon.
_PARAMETER: Final = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")
#: What a query that only reads begins with, after comments and parentheses.
_READS: Final = re.compile(r"(?>\s|\(|--.*\n|/\*[\s\S]*?\*/)*+(SELECT|WITH)\b", re.IGNORECASE)


def url_problem(url: str) -> str:
    """Return what is wrong with the URL of a database; empty = nothing.

    The text never repeats the URL, which may hold a password.
    """
    if not _URL.fullmatch(url):
        return (
            "sql: must be a URL of SQLAlchemy such as postgresql+psycopg://user@127.0.0.1/invoices "
            f"or sqlite:///{SHARED}/invoices.db"
        )
    if _PASSWORD.search(url) or _SECRET_KEY.search(url):
        return "sql: must have no password in the URL; write password: {env: NAME} or {file: PATH}"
    if "{" in url.replace(SHARED, "") or "}" in url.replace(SHARED, ""):
        return f"sql: {SHARED} is the one place that a URL may have"
    return ""


def query_problem(query: str) -> str:
    """Return what is wrong with a query, as far as that is known without its database; empty =
    nothing."""
    others = sorted({name for name in _PARAMETER.findall(query) if name != GROUP})
    if others:
        return (
            f"query: has no value for :{others[0]}; :{GROUP} is the one parameter, and \\: is a "
            "colon"
        )
    if not query.strip(" \t\n;"):
        return "query: is empty"
    if not _READS.match(query):
        return "query: must begin with SELECT or WITH: it is not to change the database"
    return ""


def keys_problem(sql: str | None, query: str, other_keys: Mapping[str, object]) -> str:
    """Return what is wrong with the keys of a database; empty = nothing.

    Args:
        other_keys: keys that have a meaning only with ``sql``, by name.
    """
    if sql is None:
        given = [key for key, value in {"query": query, **other_keys}.items() if value]
        return f"{given[0]}: has a meaning only with sql" if given else ""
    return url_problem(sql) or query_problem(query)
