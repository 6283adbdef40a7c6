"""The command line that does the same again, made from what a command declares."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from harness.scenario.bundled import from_anywhere
from harness.toolchains.own_builds import absolute, is_own

#: Parameters that say how or where it is done this time, not what is done. Of `repro --all` each
#: bug is repeated on its own.
OF_THIS_TIME: Final = frozenset(
    (
        *(
            "keep_up",
            "offline",
            "otlp",
            "prometheus",
            "out",
            "budget",
            "resume",
            "night",
            "history",
            "fail_on",
        ),
        *("every", "budget_s"),
    )
)


def repeat_command(whole: click.Command, name: str, given: Mapping[str, Any]) -> str:
    """The command line, as a user would type it in any folder: what has its default is left out.

    Args:
        whole: the group of all commands.
        name: of the command: ``run``, ``suite run``.
        given: value of each parameter, by its name; a `Path` is named by its whole path.
    """
    command = whole
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.commands[word]
    words = ["brokerstorm", *name.split()]
    for parameter in command.params:
        value = given.get(str(parameter.name))
        if parameter.name not in OF_THIS_TIME and not _is_left_out(parameter, value):
            words += _words(parameter, value)
    return shlex.join(words)


def _is_left_out(parameter: click.Parameter, value: object) -> bool:
    return value is None or value is False or value in ("", ()) or value == parameter.default


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    name = max(parameter.opts, key=len)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        yield name
        return
    for each in value if parameter.multiple else (value,):
        if isinstance(parameter, click.Option):
            yield name
        yield _word(parameter, each)


def _word(parameter: click.Parameter, value: Any) -> str:
    """A value so that it means the same from any folder."""
    from experiments.nights.file import bundled_suites

    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, float):
        is_time = parameter.type is click.STRING  # `commands.options.seconds` read it
        return f"{value:g}s" if is_time else f"{value:g}"
    text, here = str(value), Path.cwd()
    if isinstance(parameter, click.Argument):
        return text if text in bundled_suites() else from_anywhere(text)
    if is_own(text):
        return absolute(text, here)
    key, is_set, version = text.partition("=")  # of ``--set``
    return f"{key}{is_set}{absolute(version, here)}"
