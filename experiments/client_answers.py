"""Reads what clients did when brokers answered with errors: the results file of the suite
`answers`, a row for each system, request, error and client."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from harness.scenario.bundled import BUNDLED

RESULTS_FILE: Final = BUNDLED / "suites" / "answers-results.json"


class ClientAnswer(BaseModel):
    """What one client did with one error.

    Attributes:
        system: whose brokers answered.
        request, error: as the protocol names them. An answer that was false in another way, or that
            was lost, is an error here, too.
        role: whether its producer or its consumer is concerned.
        messages: acknowledged by its producer, or delivered to its consumer.
        failed, unknown: sends by outcome; 0 for a consumer.
        lost, twice, late, skipped, again: messages by what was found of them.
        hung: messages whose calls had no answer in time, or stalls of a consumer.
        died: its own word for the reason, or empty.
        back_s: seconds from the end of the fault to the next message; None = none came, or none
            before the next fault.
        verdict: of the round: pass, fail or unknown.
        broke: classes of the promises that this client broke; None = not recorded.
        day: when it was measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str = "kafka"
    request: str
    error: str
    client: str
    version: str
    role: Literal["producer", "consumer"]
    messages: int
    failed: int = 0
    unknown: int = 0
    lost: int = 0
    twice: int = 0
    late: int = 0
    skipped: int = 0
    again: int = 0
    hung: int = 0
    died: str = ""
    back_s: float | None = None
    verdict: str
    broke: tuple[str, ...] | None = None
    day: date

    @property
    def about(self) -> tuple[str, str, str, str]:
        """Return the system, the request, the error and the client."""
        return self.system, self.request, self.error, self.client


def read_answers(path: Path = RESULTS_FILE) -> list[ClientAnswer]:
    """Read the results file.

    Raises:
        pydantic.ValidationError: the file is not of that form.
    """
    return TypeAdapter(list[ClientAnswer]).validate_json(path.read_bytes())
