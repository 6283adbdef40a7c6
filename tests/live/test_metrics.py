"""Metrics of live runs: what the endpoint said at the end is what the capture holds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.records import Event
from tests.live.printed import follow_summary
from tests.live.run_rig import brokerstorm

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("spark")]

SCENARIO = """
name: metered
system: {system}
topics: {{orders: {{}}, clicks: {{}}}}
load:
  rate: 200
  duration: 4s
  warm_up: 1s
  producers: {{shop: {{client: {client}}}}}
  consumers: {{billing: {{client: {client}}}}}
require: {{rate_ratio: 0.5}}
variants:
  plain: {{expect: clean}}
  large: {{expect: clean, override: {{load: {{payload: 900}}}}}}
"""


class Page:
    """The last of what a Prometheus endpoint said of each run."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.last: dict[str, dict[str, dict[str, float]]] = {}

    def read(self) -> None:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        now: dict[str, dict[str, dict[str, float]]] = {}
        for family in families:
            for sample in family.samples:
                if run := sample.labels.get("brokerstorm_run"):
                    found = now.setdefault(run, {}).setdefault(sample.name, {})
                    outcome = sample.labels.get("brokerstorm_outcome", "")
                    found[outcome] = found.get(outcome, 0) + sample.value
        self.last.update(now)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Read twice a second, as long as it is there."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                try:
                    self.read()
                except (URLError, ConnectionError):
                    continue

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def captured(run: Path) -> tuple[dict[str, int], int]:
    """Sends by outcome, and what consumers were handed."""
    sends = json.loads((run / "result.json").read_text())["sends"]
    files = (run / "sealed" / "deliveries").rglob("*.parquet")
    events = [
        event
        for file in files
        for event in pq.read_table(file, columns=["event"])["event"].to_pylist()
    ]
    return {each: sends[each] for each in ("ok", "fail", "info") if sends[each]}, events.count(
        Event.DELIVER
    )


@pytest.mark.parametrize(
    ("system", "client"),
    [("kafka", "confluent-kafka"), ("pulsar", "pulsar-client"), ("qpid", "pika")],
)
def test_counts_of_every_round_are_those_of_its_result(
    system: str, client: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "metered.yaml"
    scenario.write_text(SCENARIO.format(system=system, client=client))
    page, runs = Page(), tmp_path / "runs"
    with page.watched():
        said = brokerstorm(
            "--run-dir", str(runs), "run", str(scenario), "--prometheus", str(page.port)
        )
    assert said.code == 0, said.out + said.err
    follow_summary(runs / "latest")
    rounds = {str(path.parent.relative_to(runs)): path.parent for path in runs.rglob("sealed")}
    assert len(rounds) == 2
    for name, folder in rounds.items():
        sent, handed = captured(folder)
        told = page.last[name]
        assert told["messaging_client_sent_messages_total"] == sent
        assert told["messaging_client_consumed_messages_total"] == {"": handed}
        assert handed
