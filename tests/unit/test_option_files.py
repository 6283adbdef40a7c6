"""Options that are in a file of the application, as Java programs read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import ScenarioError, UsageError
from harness.plan.build import build_plan
from harness.properties import read_properties
from harness.scenario.file import load_scenario, variants
from harness.scenario.model import Scenario
from harness.workers import known_workers

FILE = """# producer.properties of the shop
bootstrap.servers=broker-1.example.com:9093,\\
    broker-2.example.com:9093
security.protocol = SASL_SSL
sasl.jaas.config=PlainLoginModule required password="secret-of-the-shop";
key.serializer org.apache.kafka.common.serialization.StringSerializer
acks: all
linger.ms=5
"""
SCENARIO = """name: x
load:
  producers:
    shop: {client: kafka-clients, options: {file: shop.properties, linger.ms: 7}}
variants:
  a: {}
  b: {override: {load: {producers: {shop: {options: {file: other.properties}}}}}}
"""


def written(folder: Path) -> Scenario:
    (folder / "shop.properties").write_text(FILE)
    (folder / "other.properties").write_text("acks=1\n")
    (folder / "shop.yaml").write_text(SCENARIO)
    return load_scenario(folder / "shop.yaml", clients=known_workers)


def test_a_file_gives_options_and_names_what_is_left_aside(tmp_path: Path) -> None:
    scenario = written(tmp_path)
    options = [build_plan(each, seed=1).producers[0].options for _, each, _ in variants(scenario)]
    assert options == [{"acks": "all", "linger.ms": "7"}, {"acks": "1", "linger.ms": "7"}]
    assert scenario.notes == [
        "load.producers.shop.options.file: left aside, a run sets it itself: bootstrap.servers, "
        "security.protocol, sasl.jaas.config, key.serializer"
    ]


def test_a_run_keeps_the_values_and_no_secret(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere" / "scenario.yaml"
    kept.parent.mkdir()
    kept.write_text(written(tmp_path).text)
    assert "secret-of-the-shop" not in kept.read_text()
    assert "properties" not in kept.read_text()
    again = load_scenario(kept, clients=known_workers)
    assert again.load.producers["shop"].options == {"acks": "all", "linger.ms": 7}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb : 2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("! no\n  # no\n\n a = b=c \n", {"a": "b=c "}),
        ("a=1,\\\n   2\r\nb=\\u00e4\\n\n", {"a": "1,2", "b": "ä\n"}),
        ("a\\=b=1\na\\=b=2\n", {"a=b": "2"}),
    ],
)
def test_lines_are_read_as_java_reads_them(
    tmp_path: Path, text: str, found: dict[str, str]
) -> None:
    file = tmp_path / "a.properties"
    file.write_bytes(text.encode())
    assert read_properties(file) == found


def test_a_pair_of_surrogates_is_one_character_and_a_half_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.properties"
    path.write_text("a=\\ud83d\\ude00\n")
    assert read_properties(path) == {"a": "\U0001f600"}
    path.write_text("a=1\nb=\\ud800\n")
    with pytest.raises(UsageError, match=r"p\.properties:2: half a character"):
        read_properties(path)


def test_a_line_without_a_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("a=1\n=2\n")
    with pytest.raises(UsageError, match=r"a\.properties:2: no key before the value: '=2'"):
        read_properties(tmp_path / "a.properties")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("file: nope.properties", "shop.options.file: cannot read"),
        ("file: pipe", "not a regular file, got 'pipe'"),
        (
            "file: consumer.properties",
            "is set by brokerstorm itself: write `group` of the consumer",
        ),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, options: str, problem: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "consumer.properties").write_text("group.id=billing\n")
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: x\nload: {{producers: {{shop: {{client: kafka-clients, options: {{{options}}}}}}}}}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, clients=known_workers)
    assert problem in str(caught.value)
