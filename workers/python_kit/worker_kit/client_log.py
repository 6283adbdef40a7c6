"""The log of a client that uses Python's `logging`: on stderr, each line with its time in UTC."""

from __future__ import annotations

import logging
import sys
import time


def show_client_log() -> None:
    """Warnings and worse, of every logger."""
    lines = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    lines.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
