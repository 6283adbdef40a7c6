"""Specs of worker processes, whole without what a test does not ask for."""

from __future__ import annotations

from typing import Any

from harness.contracts.worker import ClientPart, ConsumerPart, ProcessSpec, ProducerPart, SpecPart


def sending(payload_bytes: int = 100, **asked: Any) -> ProducerPart:
    """The part of a producer."""
    usual = {
        "instance": 1, "lane_groups": [], "rate_per_s": 0.0, "payload_bytes": payload_bytes,
        "payload_max_bytes": payload_bytes, "warm_up_s": 0.0, "load_s": 1.0, "call_deadline_s": 60.0,
    }  # fmt: skip
    return ProducerPart.model_validate({**usual, **asked})


def reading(session: int = 1, **asked: Any) -> ConsumerPart:
    """The part of a consumer."""
    usual = {"session": session, "group": "g", "topics": [], "commit_every_s": 1.0}
    return ConsumerPart.model_validate({**usual, **asked})


def worker_spec(
    name: str = "p-1",
    library: str = "echo",
    part: SpecPart | None = None,
    *,
    options: dict[str, str] | None = None,
    streams: dict[str, int] | None = None,
    **more: Any,
) -> ProcessSpec:
    """Of a producer, or of what ``part`` is for."""
    part = part or sending()
    role = type(part).__name__.removesuffix("Part").lower()
    usual = {
        "run_id": "r", "run_tag": 7, "system": "kafka", "name": name, "capture_dir": "", "bootstrap": "",
        "topics": {}, "streams": streams or {}, role: part,
        "client": ClientPart(library=library, version="", options=options or {}),
    }  # fmt: skip
    return ProcessSpec.model_validate({**usual, **more})
