"""The commands bundle, open and upload: a run as one archive and back, or at a URL."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import click

from commands import completion
from commands.console import Settings, command, write
from commands.options import FileToWrite
from harness.errors import Exit, UsageError
from harness.rundir import is_url, point_latest

DEFAULT_MAX_SIZE = "20MB"
#: Of files that were not unpacked.
_NAMES_SHOWN = 5
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*([KMG]B)?", re.IGNORECASE)


class Size(click.ParamType[int]):
    """``20MB``, as bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert ``20MB`` into bytes."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        if found is None or not (
            count := round(float(found[1]) * _UNITS[(found[2] or "").upper()])
        ):
            self.fail(f"{value!r} is not a size: write 500KB, 20MB or 1GB", param, ctx)
        return count


@command(
    "bundle", example="brokerstorm bundle\nbrokerstorm bundle RUN -o report.tar.gz --max-size 8MB"
)
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option(
    "-o",
    "--output",
    type=FileToWrite(),
    metavar="FILE",
    help="Archive to write; default: RUN.tar.gz in the current folder.",
)
@click.option(
    "--max-size",
    type=Size(),
    default=DEFAULT_MAX_SIZE,
    show_default=True,
    help="Maximum size of the archive; files that do not fit are left out and listed.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def bundle(
    settings: Settings, run: str | None, output: Path | None, max_size: int, force: bool
) -> int:
    """Pack a run into one archive to attach to a bug report.

    RUN is an id from `list runs` or a folder: a run, a campaign or the folder of a `repro`;
    default: the latest. The archive contains scenario, plan, manifest, results, captured data,
    logs, stacks, versions and issue.md, a report to paste. The values of options whose names mark
    them as secrets are removed. `open` unpacks the archive.
    """
    from experiments.bundle.archive import SUFFIX
    from experiments.bundle.making import make_bundle, megabytes
    from experiments.bundle.opening import run_of

    root = run_of(settings.run_dir, run, with_tables=True)
    target = output or Path(f"{root.run_id}{SUFFIX}")
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="--force overwrites it, -o FILE writes another")
    made = make_bundle(root, target, max_size, os.environ)
    document = {
        "file": str(made.path),
        "bytes": made.bytes,
        "files": made.files,
        "redacted": made.redacted,
        "left_out": made.left_out,
    }

    def text() -> None:
        write(f"{made.path}: {megabytes(made.bytes)}, {made.files} files of {root.run_id}")
        if made.redacted:
            write(f"  redacted in {made.redacted} places: values of options named as secrets")
        for line in made.left_out:
            write(f"  left out: {line}")
        opening = f"brokerstorm open {shlex.quote(str(made.path))}"
        write(f"  the report to paste: `{opening}`, then issue.md in its folder")

    settings.show(document, text)
    return Exit.PASS


@command("open", example="brokerstorm open report.tar.gz\nbrokerstorm open report.tar.gz DIR")
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument(
    "folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path)
)
def open_(settings: Settings, bundle: Path, folder: Path | None) -> int:
    """Unpack a bundle of a run.

    DIR is a new or empty folder; default: RUN_DIR/ID, which also makes it the latest run. Only
    files that belong to a bundle are written, all of them inside DIR; other files in the archive
    are listed. `show`, `trace`, `analyze` and `run --replay` accept the folder, and the archive
    itself.
    """
    from experiments.bundle.opening import folder_of, open_bundle

    opened = open_bundle(bundle, folder or settings.run_dir / folder_of(bundle))
    if folder is None:
        point_latest(opened.run)  # what was opened is what one wants to see
    run = opened.run.root
    cover = opened.cover
    document = {"folder": str(run), "left_out": cover.left_out, "ignored": opened.ignored}
    named = shlex.quote(str(run) if folder else opened.run.run_id)

    def text() -> None:
        write(f"{run}: {cover.run}, bundled by {cover.made_by}")
        for line in cover.left_out:
            write(f"  left out: {line}")
        if opened.ignored:
            shown = ", ".join(ascii(name)[1:-1] for name in opened.ignored[:_NAMES_SHOWN])
            more = ", ..." if len(opened.ignored) > _NAMES_SHOWN else ""
            write(f"  not unpacked, because a bundle does not hold such files: {shown}{more}")
        again = (
            f"`brokerstorm show --html {named}` draws its page, `brokerstorm analyze {named}` "
            "judges again"
        )
        write(f"  {again}; issue.md is the report")

    settings.show(document, text)
    return Exit.PASS


@command(
    "upload",
    example="brokerstorm upload RUN s3://bucket/runs\nbrokerstorm show s3://bucket/runs/RUN",
)
@click.argument("run", shell_complete=completion.runs)
@click.argument("url", metavar="URL")
def upload_(settings: Settings, run: str, url: str) -> int:
    """Copy a run to a folder at a URL.

    `show`, `trace`, `analyze`, `compare`, `bundle` and `run --replay` accept the URL of the copied
    run. RUN is an id from `list runs` or a folder. It must be sealed, as every finished run is. URL
    is one that PyArrow opens: s3://, gs://, abfss://, hdfs:// or file://; the run is copied to
    URL/ID. Raw segments and the data of the brokers are left out: they are not needed once a run is
    sealed. `list runs URL` lists the runs at a URL.
    """
    from experiments.bundle.opening import run_of
    from harness.stored import Folder, upload

    if not is_url(url):
        raise UsageError(f"{url} is not a URL", hint="write s3://BUCKET/FOLDER, or file:///FOLDER")
    root = run_of(settings.run_dir, run)
    copied = upload(root, url)
    there = (Folder(url) / root.run_id).url
    document = {"url": there, "files": len(copied)}
    settings.show(document, lambda: write(f"{there}: {len(copied)} files of {root.run_id}"))
    return Exit.PASS
