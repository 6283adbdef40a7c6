"""Native broker settings from templates: one function for both runtimes.

A template is the broker's own file with Jinja fields for what differs between nodes. The user's settings
are laid over the rendered text key by key, so a scenario uses the broker's own names and nothing here
knows what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jinja2

from harness.errors import UsageError
from harness.validation import is_one_line

#: Keeps what it compiled: a plan renders the settings of every node a few times.
_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # property files, not HTML
    loader=jinja2.FileSystemLoader("/"),
)
_KEY = re.compile(r"^([A-Za-z0-9_.-]+)\s*=", re.MULTILINE)


def render(
    template: Path,
    values: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    reserved: Collection[str] = (),
) -> str:
    """The text of a native settings file for one node.

    Args:
        values: fields of the template; a field without a value is an error.
        settings: ``key=value`` lines laid over the result; only for property files.
        reserved: settings that say who a node is and where it listens: the runtime owns them.

    Raises:
        UsageError: ``settings`` holds a key that the runtime owns, or a value of more than one line.
    """
    text = _ENVIRONMENT.get_template(str(template.absolute())).render(values)
    return overlay(text, settings or {}, reserved)


def overlay(text: str, settings: Mapping[str, Any], reserved: Collection[str] = ()) -> str:
    """``text`` with each setting in place of its line, or at the end."""
    for key, value in settings.items():
        line = f"{key}={native(value)}"
        if key in reserved:
            raise UsageError(
                f"cluster.config: {key} cannot be set, the runtime decides it",
                hint="leave out identity, listener and data folder settings",
            )
        if not _KEY.match(f"{key}=") or not is_one_line(line):
            raise UsageError(f"cluster.config: {key!r}: not a setting of one line")
        lines = text.splitlines()
        kept = [old for old in lines if not re.match(rf"{re.escape(key)}\s*=", old)]
        at = next((i for i, old in enumerate(lines) if re.match(rf"{re.escape(key)}\s*=", old)), len(kept))
        text = "\n".join([*kept[:at], line, *kept[at:]]) + "\n"
    return text


def native(value: Any) -> str:
    """A YAML scalar as a property value: ``True`` -> ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
