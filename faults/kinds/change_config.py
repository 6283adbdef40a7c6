"""change-config: an operator changes settings of a topic that is in use, and puts them back."""

from __future__ import annotations

from typing import Final, cast

from pydantic import ConfigDict, Field

from faults.kit.cluster_view import ClusterView, find_ability
from faults.kit.errors import StepProblem
from faults.kit.injection import Injection
from faults.kit.leadership import TopicFault
from faults.kit.params import Inventory, OneTopicParams, names
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import ChangesTopics, HasPlacement, Proof, TruncatesLogs

#: Under these settings a message that is acknowledged stays, as far as it did before.
_ALLOWED: Final = (
    *("min.insync.replicas", "max.message.bytes", "flush.messages", "flush.ms"),
    *("segment.bytes", "segment.ms", "compression.type", "index.interval.bytes"),
)
#: Under these brokers remove the oldest messages when it suits them: what they removed is gone, not lost.
_RETENTION: Final = ("retention.ms", "retention.bytes")
_IN_SYNC: Final = "min.insync.replicas"


class ChangeConfigParams(OneTopicParams):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    config: dict[str, str] = Field(
        min_length=1,
        description=f"the topic's settings meanwhile: {names((*_ALLOWED, *_RETENTION))}; brokers look for "
        "what to remove as often as `log.retention.check.interval.ms` of `cluster.config` says",
    )
    for_: Seconds = Field(10.0, alias="for", gt=0, description="put back after this long")


class ConfigChanged(Injection):
    """A topic with other settings. Only brokers can put them back, so the heal asks them."""

    looks_last = True
    params: ChangeConfigParams

    def __init__(self, view: ClusterView, topic: str, params: ChangeConfigParams) -> None:
        super().__init__(view, [topic], params)
        self._topic = topic
        self._admin = cast("ChangesTopics", find_ability(view.cluster, ChangesTopics))
        self._own = self._admin.own_settings(topic, list(params.config))
        self._before = self._admin.settings(topic, list(params.config))
        self._begins = self._spans()
        self._is_undone = False
        self._told = ""

    def _spans(self) -> dict[int, tuple[int, int]]:
        """Of each log, where brokers may remove what is in it."""
        logs = find_ability(self.view.cluster, TruncatesLogs)
        return dict(logs.log_spans(self._topic)) if logs and removes(self.params) else {}

    def apply(self) -> None:
        self._admin.change_settings(self._topic, self.params.config)

    def proof(self) -> Proof:
        """What the brokers say is in force; with retention also where each log begins now."""
        now = self._admin.settings(self._topic, list(self.params.config))
        changed = {k: [self._before[k], v] for k, v in now.items() if v == self.params.config[k]}
        changed = {key: pair for key, pair in changed.items() if pair[0] != pair[1]}
        text = ", ".join(f"{key}: {old} -> {new}" for key, (old, new) in changed.items())
        self._told = text or self._told
        if not removes(self.params):
            return Proof(bool(changed), f"{self._topic}: {text or 'as before'}", {"changed": changed})
        spans = self._spans()
        first = {p: self._begins.get(p, (0, 0))[0] for p in spans}  # it may have grown
        begins = {p: begin for p, (begin, _) in spans.items() if begin > first[p]}
        gone = sum(begin - first[p] for p, begin in begins.items())
        text = f"{self._topic}: {self._told or 'as before'}; {gone:,} messages of {len(begins)} logs are gone"
        cut = {f"{self._topic}-{p}": begin for p, begin in begins.items()}
        return Proof(bool(self._told and cut), text, {"changed": changed, "cut": cut})

    def heal(self) -> None:
        self._admin.change_settings(self._topic, self._own)
        self._is_undone = True

    def is_undone(self) -> bool:
        return self._is_undone

    def missing(self) -> str:
        now = self._admin.settings(self._topic, list(self.params.config))
        wrong = [key for key, value in now.items() if value != self._before[key]]
        return f"{wrong[0]} of {self._topic} is {now[wrong[0]]}" if wrong else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        return "kept"

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(settings={self._topic: dict(self._own)})


def removes(params: ChangeConfigParams) -> bool:
    """Whether brokers may remove messages meanwhile."""
    return any(key in _RETENTION for key in params.config)


class ChangeConfig(TopicFault[ChangeConfigParams]):
    """Change settings of a topic that is in use, and put them back after `for`."""

    kind = "change-config"
    said = frozenset({*TopicFault.said, "config"})
    abilities = (ChangesTopics, HasPlacement)
    params = ChangeConfigParams

    def complete(self, params: ChangeConfigParams, inventory: Inventory) -> ChangeConfigParams:
        params = super().complete(params, inventory)
        topic = inventory.topic(params.topic)
        assert topic is not None
        for key, value in params.config.items():
            if key not in (*_ALLOWED, *_RETENTION):
                allowed = names((*_ALLOWED, *_RETENTION))
                raise StepProblem("config", f"{key!r} would change what is promised. Allowed: {allowed}")
            if key == _IN_SYNC and not (value.isdigit() and int(value) >= min(2, topic.replication)):
                raise StepProblem("config", f"{key}={value}: below 2 an acknowledgement promises less")
        if removes(params) and any(name.startswith("transactions:") for name in inventory.coordinated):
            raise StepProblem(
                "config", "transactions of which a part was removed cannot be judged as a whole"
            )
        return params

    def abilities_for(self, params: ChangeConfigParams) -> tuple[type, ...]:
        return (*self.abilities, TruncatesLogs) if removes(params) else self.abilities

    def choices(self, params: ChangeConfigParams) -> list[str]:
        return [", ".join(f"{key}={value}" for key, value in params.config.items())]

    def lasts_s(self, params: ChangeConfigParams) -> float | None:
        return params.for_

    def commands(self, params: ChangeConfigParams, inventory: Inventory) -> list[str]:
        settings = ", ".join(f"{key}={value}" for key, value in params.config.items())
        return [
            f"IncrementalAlterConfigs topic {params.topic}: {settings}",
            f"after {params.for_:g} s: as before",
        ]

    def prepare(self, params: ChangeConfigParams, view: ClusterView, draw: int) -> ConfigChanged:
        return ConfigChanged(view, params.topic, params)
