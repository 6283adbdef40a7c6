"""Names single messages and places, for witnesses."""

from __future__ import annotations

from analysis.kernels.history import BucketHistory
from harness.contracts.message import MessageId


def name_of(history: BucketHistory, slot: int, row: int = -1) -> str:
    """``instance/lane/seq``, with ``.attempt`` when it is not the first; a row without a message of
    ours is ``stream@position``."""
    if slot < 0:
        return f"{stream_of(history, row)}@{place_of(history, row)}" if row >= 0 else ""
    return MessageId.witness(*history.identity_of(slot))


def place_of(history: BucketHistory, row: int) -> str:
    """Position of a log row: an offset, or ledger:entry:batch where there are ledgers."""
    log = history.bucket.log
    return place_text(int(log["position"][row]), int(log["ledger"][row]), int(log["batch"][row]))


def place_text(position: int, ledger: int = 0, batch: int = -1) -> str:
    """A position as its system writes it: ``812``, or ``12:812`` and ``12:812:3`` in a batch."""
    if not ledger:
        return str(position)
    return f"{ledger}:{position}" + (f":{batch}" if batch >= 0 else "")


def stream_of(history: BucketHistory, row: int) -> str:
    """Name of a log row's stream."""
    return history.context.stream_name(int(history.bucket.log["stream"][row]))


def count_of(number: int, one: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")


def some_of(names: list[str], total: int) -> str:
    """``2, 3 and 7 more``."""
    rest = total - len(names)
    return ", ".join(names) + (f" and {rest:,} more" if rest > 0 else "")
