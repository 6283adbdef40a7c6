"""The settings that we ship, under a load whose every message is followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from brokerstorm import Result, assert_clean
from shop.orders import SETTINGS

STORM = Path(__file__).with_name("storm.yaml")


def test_our_settings_keep_every_message(brokerstorm_run: Callable[..., Result]) -> None:
    options = {name: str(value).lower() for name, value in SETTINGS.items()}
    result = brokerstorm_run(STORM, seed=7, overrides={"load.producers.shop.options": options})
    assert_clean(result)
    assert all(fault.effective for run in result.runs for fault in run.faults)
