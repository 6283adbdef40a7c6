"""docs/reference/cli.md, made from the commands: options of several commands are listed once."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator

import click

from cli import cli
from docs.markdown import MADE, item, paragraph

#: An option that so many commands have with the same words is in a list of its own.
_SEVERAL = 2
#: Its name, what it takes, what it means.
Option = tuple[str, str, str]


def cli_page() -> str:
    """The whole page."""
    commands = list(_commands(cli))
    counts = Counter(option for _, command in commands for option in _options(command))
    shared = {option for option, count in counts.items() if count >= _SEVERAL}
    lines = [
        "# Commands",
        "",
        MADE,
        "",
        *_text(cli),
        "",
        "Accepted before and after every command:",
        "",
    ]
    lines += [line for option in _options(cli) for line in _option_item(option)]
    lines += ["", "Options that several commands have; each names those that it takes:", ""]
    lines += [line for option in counts if option in shared for line in _option_item(option)]
    for name, command in commands:
        lines += ["", f"## {name}", "", *_command(name, command, shared)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, with the commands of a part after the part."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def _command(name: str, command: click.Command, shared: set[Option]) -> Iterator[str]:
    arguments = [
        p.make_metavar(_context(command)) for p in command.params if isinstance(p, click.Argument)
    ]
    usage = " ".join(["brokerstorm", name, *arguments])
    yield from _text(command, f"`{usage}`")
    own = [option for option in _options(command) if option not in shared]
    also = [f"`{option[0].split(', ')[-1]}`" for option in _options(command) if option in shared]
    yield from (line for option in own for line in _option_item(option))
    yield from item(f"as above: {', '.join(also)}") if also else ()
    if example := getattr(command, "example", ""):
        yield from item(
            "example: " + "; ".join(f"`{line.strip()}`" for line in example.splitlines())
        )


def _text(command: click.Command, usage: str = "") -> Iterator[str]:
    """Yield the help text of a command; ``usage`` begins it."""
    first, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    texts = [f"{usage}: {first}" if usage else first, *rest.split("\n\n")]
    yield from paragraph(" ".join(" ".join(texts).split()))


def _options(command: click.Command) -> list[Option]:
    context = _context(command)
    found = []
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and "--help" not in record[0]:
            names, _, takes = record[0].partition(" ") if " " in record[0] else (record[0], "", "")
            if names.endswith(","):  # -q, --quiet
                second, _, takes = takes.partition(" ")
                names = f"{names} {second}"
            meaning = " ".join(record[1].split())
            found.append(
                (names, takes.replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "X"), meaning)
            )
    return found


def _context(command: click.Command) -> click.Context:
    return click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])


def _option_item(option: Option) -> list[str]:
    name, takes, meaning = option
    return item(f"`{f'{name} {takes}'.strip()}`: {meaning}")
