"""Measures the CPU time that the pages of a row take, in the first segment and in later ones.

    python -m bench.segments [--segments 10] [--folder DIR]

The segments are those of the Python workers. One byte of each page is written, so nothing but the
making of the segment and its pages is measured. DIR decides the file system.
"""

from __future__ import annotations

import argparse
import mmap
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workers" / "python_kit"))

from worker_kit import layouts as lay
from worker_kit.segments import SegmentWriter

OWNER: Final = 1
RUN_TAG: Final = 7


def cpu_ns_a_row(writer: SegmentWriter) -> float:
    """Make the next segment, write to each of its pages, and return the CPU nanoseconds a row."""
    began = time.process_time_ns()
    rows, at, end = writer.rotate()
    for page in range(at, end, mmap.PAGESIZE):
        rows[page] = 1
    return (time.process_time_ns() - began) / writer.capacity


def main() -> None:
    """Print the first segment's figure and the median of the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--segments", type=int, default=10, help="at least 2")
    parser.add_argument("--folder", type=Path, help="where they go; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brokerstorm-bench-", dir=options.folder) as folder:
        writer = SegmentWriter(Path(folder), lay.SENDS, OWNER, RUN_TAG)
        first, *later = [cpu_ns_a_row(writer) for _ in range(max(options.segments, 2))]
    print(f"first segment {first:.0f} ns a row, later ones {statistics.median(later):.0f} ns a row")


if __name__ == "__main__":
    main()
