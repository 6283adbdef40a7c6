"""Records a run in a terminal and draws it as docs/images/run.svg: `make recording`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "run.svg"
COLUMNS: Final = 100
ROWS: Final = 34
#: The picture runs this much faster than the run did.
SPEED: Final = 6
#: The summary stays this long before the picture begins again, in seconds.
LAST_S: Final = 12
#: Changes of the screen within this time are one, in milliseconds: the live view changes four times
#: a second.
FRAME_MS: Final = 150


def record(cast: Path, tools: Path, command: str) -> None:
    """Run a command in a terminal of `COLUMNS` x `ROWS`, and write what it showed.

    Raises:
        subprocess.CalledProcessError: the recorder failed.
    """
    size = ["--cols", str(COLUMNS), "--rows", str(ROWS)]
    subprocess.run(
        [tools / "asciinema", "rec", "--quiet", "--overwrite", *size, "--command", command, cast],
        cwd=ROOT,
        check=True,
    )


def faster(cast: Path) -> list[str]:
    """The lines of a recording (asciicast, version 2) with times divided by `SPEED`."""
    header, *events = cast.read_text().splitlines()
    lines = [header]
    for line in events:
        seconds, kind, text = json.loads(line)
        lines.append(json.dumps([round(seconds / SPEED, 3), kind, text]))
    return lines


def main(tools: Path) -> None:
    """Record `run kafka-quick`, and draw it."""
    folder = ROOT / "build" / "recording"
    folder.mkdir(parents=True, exist_ok=True)
    cast = folder / "run.cast"
    record(cast, tools, "./brokerstorm run kafka-quick")
    sped_up = folder / "faster.cast"
    sped_up.write_text("\n".join(faster(cast)) + "\n")
    times = ["--min-frame-duration", str(FRAME_MS), "--loop-delay", str(LAST_S * 1000)]
    subprocess.run([tools / "termtosvg", "render", sped_up, PICTURE, *times], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
