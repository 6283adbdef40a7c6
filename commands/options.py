"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from commands import completion
from harness.errors import UsageError


class FileToWrite(click.Path):
    """A file of the user's; its name is not empty, and UTF-8, for it is written into documents."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Convert the argument into a path; its name must be text in UTF-8."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.name or str(path).encode(errors="ignore").decode() != str(path):
            self.fail(f"{str(path)!r} is not a file name in UTF-8", param, ctx)
        return path


def seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Convert the value of an option that takes a time: ``90s``, ``3h`` -> seconds."""
    if value is None or context.resilient_parsing:
        return None
    from harness.durations import parse_seconds  # brings pydantic, which completion can do without

    try:
        parsed = parse_seconds(value)
    except ValueError as error:
        raise UsageError(f"{parameter.opts[0]} {value} {error}") from error
    assert isinstance(parsed, float)
    return parsed


class RenamedOption(click.Option):
    """An option that had another name: its last name still works and is shown nowhere."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help of the option, without its old names."""
        known, self.opts = self.opts, self.opts[:-1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = known


seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Seed of fault times and targets; default: a new seed, shown in the summary (`plan`: 0).",
)


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a value of the scenario, e.g. load.rate=20000; may be repeated.",
)


for_option = click.option(
    "--for",
    "for_s",
    callback=seconds,
    metavar="TIME",
    help="Load duration; overrides the scenario (e.g. 8h).",
)


window_option = click.option(
    "--window",
    "window_s",
    callback=seconds,
    metavar="TIME",
    help="Judge a long load while it runs, at this interval; default: 10m; 0s turns this off.",
)
fail_fast_option = click.option(
    "--fail-fast", is_flag=True, help="Stop the load at the first violation that a window finds."
)


max_time_option = click.option(
    "--max-time",
    "max_time_s",
    callback=seconds,
    metavar="TIME",
    help="Start no new round after this time (e.g. 1h); requires --until-hit.",
)


runtime_option = click.option(
    "--runtime",
    type=click.Choice(["auto", "process", "docker"]),
    default="auto",
    envvar="BROKERSTORM_RUNTIME",
    show_envvar=True,
    help="Run brokers as processes or in containers; auto: containers if a Docker engine has the images.",
)


variant_option = click.option(
    "--variant",
    default="",
    shell_complete=completion.variants,
    help="Only this variant, as a single run; the exit code of `run` is its verdict.",
)


secure_option = click.option(
    "--secure",
    is_flag=True,
    help="Start brokers with TLS, users and ACLs; requires brokers as processes.",
)


offline_option = click.option(
    "--offline", is_flag=True, help="Use only files that were downloaded before."
)


cluster_option = click.option(
    "--cluster",
    "name",
    metavar="RUN",
    shell_complete=completion.clusters,
    help="Cluster to use, by the run id that `up` printed; required if several are running.",
)


connection_option = click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Connection file of an existing cluster to use.",
)


needs_option = click.option(
    "--needs",
    multiple=True,
    metavar="NEED",
    help="Start the cluster with what later faults need (see `list faults`); may be repeated.",
)


keep_up_option = click.option(
    "--keep-up", is_flag=True, help="Leave the cluster running afterwards; `down` stops it."
)


master_option = click.option(
    "--master", metavar="URL", help="Spark master that judges the run; default: local."
)
load_master_option = click.option(
    "--load-master",
    metavar="URL",
    help="Spark master whose executors run producers and consumers, and judge the run.",
)
load_tasks_option = click.option(
    "--load-tasks",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Number of machines that generate the load; default: all executors; requires --load-master.",
)
load_store_option = click.option(
    "--load-store",
    default="",
    metavar="URL|DIR",
    help="Folder or URL that keeps the run, writable by every executor; requires --load-master.",
)
load_port_option = click.option(
    "--load-port",
    type=click.IntRange(1, 65_535),
    default=None,
    help="Port at which the tasks of the load connect to this machine (default: any free port). "
    "Requires --load-master.",
)
load_address_option = click.option(
    "--load-address",
    default="",
    metavar="HOST[:PORT]",
    help="Address that the tasks of the load connect to, such as the end of an SSH tunnel; this machine then "
    "listens on 127.0.0.1 only. Default port: the port of --load-port. Requires --load-master.",
)
otlp_option = click.option(
    "--otlp", metavar="URL", help="Send metrics to this OpenTelemetry collector over HTTP."
)
prometheus_option = click.option(
    "--prometheus",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus on this port; default HOST: 127.0.0.1.",
)


def refuse_beside_resume(what: str, *free: str) -> None:
    """--resume continues what was begun, with its options.

    Args:
        what: what is resumed, such as "a search".
        free: parameters that may be given anew.

    Raises:
        UsageError: another one was given, too.
    """
    context = click.get_current_context()
    given = [
        each.opts[0] if isinstance(each, click.Option) else str(each.name).upper()
        for each in context.command.params
        if each.expose_value
        and each.name not in ("resume", *free)
        and context.get_parameter_source(str(each.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"--resume continues {what} with its original options",
            hint=f"remove {', '.join(given)}",
        )
