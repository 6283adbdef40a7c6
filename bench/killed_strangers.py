"""kill -9 of `run --cluster` at random moments on a Kafka cluster full of topics of others.

    python -m bench.killed_strangers FOLDER --kills 10

A cluster of three brokers is started (`up`) and filled: topics with settings and messages of their own, a
group with offsets. Each run against it is killed at a random moment, then `clean --cluster` is called. After
each it is checked that nothing of ours is left there (topics, groups, processes), and that names, settings,
offsets and contents of the others are equal to those before the first. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

ROOT: Final = Path(__file__).resolve().parents[1]
_ASK_S: Final = 30.0
PREFIX: Final = "brokerstorm"
#: Topics of others: one is compacted, one drops soon, one is nearly called as ours are.
OTHERS: Final[Mapping[str, dict[str, str]]] = {
    "orders": {"min.insync.replicas": "2"},
    "customers": {"cleanup.policy": "compact"},
    "clicks": {"retention.ms": "86400000", "segment.bytes": "1048576"},
    f"{PREFIX}-plans": {"compression.type": "zstd"},
    f"{PREFIX}-0badcafe-orders": {},
}
GROUP: Final = "billing"
SCENARIO: Final = """\
name: strange
about: leaders move on a cluster that somebody else started
system: kafka
topics: {orders: {partitions: 6, replication: 3}}
load:
  duration: 12s
  warm_up: 1s
  rate: 1000
  payload: 200
  producers: {main: {client: confluent-kafka, options: {acks: all, enable.idempotence: true}}}
  consumers: {main: {client: confluent-kafka}}
faults:
  - {fault: leader-move, every: 3s}
"""
#: A kill comes this many seconds after the start, evenly spread.
FIRST_S, LAST_S = 1.0, 60.0


def fill(bootstrap: str) -> None:
    """Make the topics of others, with messages, and a group that read some of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, 4, 3, config=config) for name, config in OTHERS.items()]
    for future in admin.create_topics(made, operation_timeout=_ASK_S).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for name in OTHERS:
        for number in range(400):
            producer.produce(name, f"{name} {number}".encode(), f"key-{number % 40}".encode())
    if producer.flush(_ASK_S):
        raise SystemExit("the topics of others could not be filled")
    read = [TopicPartition("orders", partition, 7 + partition) for partition in range(4)]
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    reader.commit(offsets=read, asynchronous=False)
    reader.close()


def fingerprint(bootstrap: str) -> dict[str, Any]:
    """All that others have there: topics with replicas and settings, messages, groups with offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {n: t for n, t in admin.list_topics(timeout=_ASK_S).topics.items() if not n.startswith("__")}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(topics)]
    settings = {
        one.name: {key: entry.value for key, entry in future.result().items()}
        for one, future in (admin.describe_configs(resources) if resources else {}).items()
    }
    groups = sorted(group.group_id for group in admin.list_consumer_groups().result().valid)
    return {
        "topics": {
            name: {number: sorted(part.replicas) for number, part in topic.partitions.items()}
            for name, topic in sorted(topics.items())
        },
        "settings": settings,
        "messages": {name: _messages(bootstrap, name, list(topics[name].partitions)) for name in topics},
        "groups": {group: _offsets(admin, group) for group in groups},
    }


def _messages(bootstrap: str, topic: str, partitions: list[int]) -> str:
    """A digest of all messages of a topic: offsets, times, keys and values."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    digest = hashlib.sha256()
    try:
        for number in sorted(partitions):
            at = TopicPartition(topic, number, 0)
            low, high = reader.get_watermark_offsets(at, timeout=_ASK_S)
            digest.update(f"{number} {low} {high}".encode())
            reader.assign([at])
            while low < high:
                message = reader.poll(_ASK_S)
                if message is None or message.error():
                    raise SystemExit(f"{topic}-{number} cannot be read at {low}")
                row = (message.offset(), message.timestamp(), message.key(), message.value())
                digest.update(repr(row).encode())
                low = (message.offset() or 0) + 1
    finally:
        reader.close()
    return digest.hexdigest()


def _offsets(admin: AdminClient, group: str) -> dict[str, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {f"{at.topic}-{at.partition}": at.offset for at in future.result().topic_partitions or ()}


def connection(folder: Path, bootstrap: str) -> Path:
    """A connection file of the cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    identity = admin.describe_cluster().result(_ASK_S)
    path = folder / "staging.yaml"
    path.write_text(
        f"system: kafka\nyours: true\ncluster_id: {identity.cluster_id}\nbootstrap: {bootstrap}\n"
        f"topics: {{prefix: {PREFIX}}}\n"
    )
    return path


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What is not as it was, as text."""
    for kind, old in before.items():
        new = now[kind]
        yield from (f"{kind}: {name} is new" for name in sorted(new.keys() - old.keys()))
        yield from (f"{kind}: {name} is gone" for name in sorted(old.keys() - new.keys()))
        yield from (f"{kind}: {n} was changed" for n in sorted(old.keys() & new.keys()) if old[n] != new[n])


def _command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "cli.py", "--run-dir", str(folder / "runs"), *words]


def _killed(folder: Path, file: Path, after_s: float) -> str:
    """Run and kill; the last line that it said, or how it ended before."""
    command = _command(folder, "run", str(folder / "strange.yaml"), "--cluster", str(file), "--offline")
    with (folder / "said.log").open("w+") as said:
        with subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said) as run:
            try:
                run.wait(after_s)
            except subprocess.TimeoutExpired:
                run.kill()
        said.seek(0)
        lines = said.read().splitlines() or ["before it said anything"]
    return lines[-1] if run.returncode == -9 else f"ended by itself with exit code {run.returncode}"


def _left_running(folder: Path) -> list[str]:
    """Processes of runs below a folder, but of the cluster itself."""
    words = [(p.pid, " ".join(p.info["cmdline"] or ())) for p in psutil.process_iter(["cmdline"])]
    return [
        f"process {pid} is left: {text[:80]}"
        for pid, text in words
        if f"{folder}/runs" in text and "raw/" in text
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "strange.yaml").write_text(SCENARIO)
    up = subprocess.run(
        _command(folder, "--json", "up", "--runtime", "process"), cwd=ROOT, capture_output=True, check=True
    )
    cluster = json.loads(up.stdout)
    wrong: list[str] = []
    try:
        fill(cluster["bootstrap"])
        file, before = connection(folder, cluster["bootstrap"]), fingerprint(cluster["bootstrap"])
        for number in range(1, given.kills + 1):
            after_s = random.uniform(FIRST_S, LAST_S)
            amid = _killed(folder, file, after_s)
            clean = subprocess.run(
                _command(folder, "clean", "--cluster", str(file)), cwd=ROOT, capture_output=True, text=True
            )
            found = list(differences(before, fingerprint(cluster["bootstrap"]))) + _left_running(folder)
            found += [f"clean ended with {clean.returncode}: {clean.stderr}"] if clean.returncode else []
            wrong += found
            print(f"{number}: killed after {after_s:.1f} s, amid: {amid}", flush=True)
            print(
                f"   clean: {clean.stdout.strip()}; {'; '.join(found) or 'theirs as before, nothing of ours'}"
            )
    finally:
        subprocess.run(_command(folder, "down", cluster["run_id"]), cwd=ROOT, check=True)
    print("\n".join(wrong) or f"{given.kills} kills: nothing of ours left, nothing of theirs touched")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
