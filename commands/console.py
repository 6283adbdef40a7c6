"""Global options, and output as text for people or one JSON document for programs.

Data goes to stdout, progress and errors to stderr. A reader that went away (``| head``) is not an
error: the exit code still tells the verdict.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from click.core import ParameterSource

from commands.repeating import repeat_command
from commands.streams import drop_output, output_problem
from experiments.context import CommandContext
from harness.invocation import for_terminal
from harness.run.interrupts import Interrupts
from harness.rundir import Document

SCHEMA_VERSION = 1
DEFAULT_RUN_DIR = "runs"
_META = "brokerstorm."
FIRST = "Start with `brokerstorm run kafka-quick`: two minutes, a verdict and a report."


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CommandContext):
    """The values of the global options."""

    json: bool
    verbose: int

    def show(self, document: Document, text: Callable[[], None]) -> None:
        """Write the JSON document, with its ``schema_version``, or call ``text`` to write for
        people."""
        with reader_may_leave():
            if self.json:
                if "schema_version" not in document:
                    document = {"schema_version": SCHEMA_VERSION, **document}
                _put(json.dumps(document, indent=1, default=str, ensure_ascii=False), sys.stdout)
            else:
                text()


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Let output end quietly when it is not read any more."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


#: What could move a terminal's cursor or change its colours: a name of the user's may hold it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def write(text: str, *, file: IO[str] | None = None) -> None:
    """Print a message; it may hold anything, also where the terminal knows only ASCII."""
    _put(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", for_terminal(text)), file or sys.stdout)


def tell(text: str) -> None:
    """A line about what happens, besides the result."""
    write(f"brokerstorm: {text}", file=sys.stderr)


def _put(text: str, target: IO[str]) -> None:
    encoding = getattr(target, "encoding", None) or "utf-8"
    target.write(text.encode(encoding, "replace").decode(encoding) + "\n")


# ----- global options -----------------------------------------------------------------------------


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a global option. The group and its command both read it, the command last: what the
    command reads in the environment gives way to what was typed before it."""
    if value in (None, False, 0):
        return
    name = str(parameter.name)
    if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
        context.meta.setdefault(_META + name, value)
    else:
        context.meta[_META + name] = value


def _global_options(*, hidden: bool) -> list[click.Option]:
    """Accepted before and after the command; listed once, in the help of the whole."""

    def option(*names: str, **keys: Any) -> click.Option:
        return click.Option(list(names), expose_value=False, callback=_note, hidden=hidden, **keys)

    return [
        option("--json", is_flag=True, help="Print one JSON document on stdout and nothing else."),
        option("-q", "--quiet", is_flag=True, help="Show no progress."),
        option(
            "-v",
            "--verbose",
            count=True,
            help="Show library logs, the environment of a run and what each fault sends; -vv shows all logs.",
        ),
        option(
            "--no-color", is_flag=True, help="Print without colour; the same as setting NO_COLOR."
        ),
        option(
            "--run-dir",
            envvar="BROKERSTORM_RUN_DIR",
            type=click.Path(file_okay=False),
            help=f"Folder that holds runs [BROKERSTORM_RUN_DIR; default: ./{DEFAULT_RUN_DIR}].",
        ),
    ]


def run_dir_of(context: click.Context) -> Path:
    """The folder of runs that was given so far, or the default."""
    return Path(context.meta.get(_META + "run_dir", DEFAULT_RUN_DIR))


def settings_of(context: click.Context) -> Settings:
    """The global options given so far."""

    def given(name: str, otherwise: Any = None) -> Any:
        return context.meta.get(_META + name, otherwise)

    interrupts = context.find_object(Interrupts) or Interrupts()
    settings = Settings(
        json=bool(given("json")),
        quiet=bool(given("quiet")),
        verbose=int(given("verbose", 0)),
        color=not given("no_color") and not os.environ.get("NO_COLOR"),
        run_dir=run_dir_of(context),
        interrupts=interrupts,
        repeat=partial(repeat_command, context.find_root().command),
    )
    _set_up_logging(settings.verbose)
    return settings


def _set_up_logging(verbose: int) -> None:
    """Client libraries log every lost connection: under faults that is noise unless asked for."""
    level = {0: logging.CRITICAL + 1, 1: logging.WARNING}.get(verbose, logging.DEBUG)
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )


class Command(click.Command):
    """A command that takes the global options too and ends its help with an example."""

    def __init__(self, *args: Any, example: str = "", is_part: bool = True, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.example = example
        self.params += _global_options(hidden=is_part)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write_text(for_terminal(line))


class CommandGroup(Command, click.Group):
    """The whole, or a part of it: commands in the order given."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


F = TypeVar("F", bound=Callable[..., Any])


def command(name: str, *, example: str) -> Callable[[Callable[..., int]], Command]:
    """Like `click.command`, with `Settings` as the first argument of the function."""

    def decorate(function: Callable[..., int]) -> Command:
        @click.pass_context
        def call(context: click.Context, /, *args: Any, **keys: Any) -> int:
            return function(settings_of(context), *args, **keys)

        parameters = getattr(function, "__click_params__", [])
        call.__doc__ = function.__doc__
        made = click.command(name, cls=Command, example=example, help=function.__doc__)(call)
        made.params = [*reversed(parameters), *made.params]
        return made

    return decorate


# ----- errors -------------------------------------------------------------------------------------


def report_problem(
    kind: str, text: str, *, hint: str, exit_code: int, as_json: bool, further: Sequence[str] = ()
) -> int:
    """Say what went wrong, once, and what to do; returns the exit code.

    ``further`` are other problems of the same input, each shown on a line of its own.

    The JSON form is the one of analysis/report/schemas/error.json, written out here because an
    error must not need the libraries that may be what is broken.
    """
    lines = [" ".join(line.split()) for line in (text, *further)]
    if as_json:
        error = {"type": kind, "message": "\n".join(lines), "hint": hint}
        document = {"schema_version": SCHEMA_VERSION, "exit_code": int(exit_code), "error": error}
        with suppress(OSError):  # `output_problem` finds it
            _put(json.dumps(document, indent=1, ensure_ascii=False), sys.stdout)
    if not as_json or output_problem() is not None:
        tell(lines[0])
        for line in lines[1:]:
            tell(line)
        if hint:
            write(f"  {hint}", file=sys.stderr)
    return int(exit_code)


def show_help(error: click.UsageError) -> int:
    """The help of the whole, for a command line without a command, and what to type first."""
    with reader_may_leave():
        write(error.format_message() + "\n\n" + FIRST, file=sys.stderr)
    return int(error.exit_code)
