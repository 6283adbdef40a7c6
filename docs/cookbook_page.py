"""docs/cookbook.md: every ready scenario, what it shows, and the command that runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from docs.markdown import MADE, item, paragraph
from harness.scenario.bundled import bundled_scenarios
from harness.scenario.file import load_scenario
from harness.scenario.model import Scenario

_SYSTEMS: Final = {
    "kafka": "Kafka",
    "pulsar": "Pulsar",
    "qpid": "Qpid Broker-J",
    "nats": "NATS JetStream",
    "rabbitmq": "RabbitMQ",
}
_HEAD: Final = f"""# Cookbook

{MADE}

This page is for people who look for a scenario to run or to start from. Each recipe is a file in the
folder `scenarios/`. `./brokerstorm plan NAME` shows its brokers, load, promises and faults without starting
anything; `--set KEY=VALUE` changes a value for one run. To make your own, copy a file and run its path.
"""


def cookbook_page() -> str:
    """The page as Markdown."""
    lines = _HEAD.splitlines()
    found = {name: (path, load_scenario(path)) for name, path in bundled_scenarios().items()}
    for system, title in _SYSTEMS.items():
        lines += ["", f"## {title}"]
        for name, (path, scenario) in found.items():
            if scenario.system == system:
                lines += _recipe(name, path, scenario)
    return "\n".join(lines) + "\n"


def _recipe(name: str, path: Path, scenario: Scenario) -> list[str]:
    paragraphs, commands = comment_of(path)
    lines = ["", f"### {name}"]
    for text in paragraphs:
        lines += ["", *paragraph(text)]
    lines += ["", "```", *(f"./{command}" for command in commands), "```", ""]
    for variant, one in scenario.variants.items():
        expected = f"; expected: {one.expect}" if one.expect else ""
        lines += item(f"Variant `{variant}`: {one.about}{expected}")
    kinds = sorted(
        {str(step["fault"]) for step in scenario.faults if isinstance(step.get("fault"), str)}
    )
    if kinds:
        named = ", ".join(f"[{kind}](reference/faults.md#{kind})" for kind in kinds)
        lines += item(f"Faults: {named}")
    return lines


def comment_of(path: Path) -> tuple[list[str], list[str]]:
    """The comment at the top of a scenario file: its paragraphs, and the commands at its end."""
    head, _, _ = path.read_text().partition("\nname:")
    lines = [line.removeprefix("#").removeprefix(" ") for line in head.splitlines()[1:]]
    commands = [line.strip() for line in lines if re.match(r" +brokerstorm ", line)]
    text = "\n".join(line for line in lines if not re.match(r" +brokerstorm ", line))
    return [" ".join(each.split()) for each in text.split("\n\n") if each.strip()], commands
