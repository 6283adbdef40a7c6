"""change-config: an operator changes settings of topics that are in use, and puts them back."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from faults.kit.cluster_view import ClusterView, find_ability
from faults.kit.errors import StepProblem
from faults.kit.injection import Injection
from faults.kit.leadership import TopicFault
from faults.kit.params import Inventory, OneTopicParams, names
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import ChangesTopics, HasPlacement, Proof, TruncatesLogs
from harness.systems import SYSTEMS, system_of

#: Under these brokers remove the oldest messages when it suits them: what they removed is gone, not
#: lost.
_RETENTION: Final = ("retention.ms", "retention.bytes")
#: Stands for the topic where settings are of a run's namespace.
_NAMESPACE: Final = "namespace"
_KEYS: Final = "; ".join(
    f"{s.name}: {names(s.changeable)}" for s in SYSTEMS.values() if s.changeable
)


def _in_words(value: object) -> object:
    """A truth value as brokers write it."""
    return str(value).lower() if isinstance(value, bool) else value


Text = Annotated[
    str, BeforeValidator(_in_words), WithJsonSchema({"type": ["string", "number", "boolean"]})
]


class ChangeConfigParams(OneTopicParams):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    config: dict[str, Text] = Field(
        min_length=1,
        description=f"the settings meanwhile ({_KEYS}); Kafka's brokers look for what to remove as often as "
        "`log.retention.check.interval.ms` of `cluster.config` says",
    )
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the settings are restored after this time"
    )


class ConfigChanged(Injection):
    """A topic, or all of a namespace, with other settings. Only brokers can put them back, so the
    heal asks them."""

    looks_last = True
    params: ChangeConfigParams

    def __init__(self, view: ClusterView, topic: str, params: ChangeConfigParams) -> None:
        super().__init__(view, [topic], params)
        self._topic = topic
        self._admin = view.ability(ChangesTopics)
        self._own = self._admin.own_settings(topic, list(params.config))
        self._before = self._admin.settings(topic, list(params.config))
        self._begins = self._spans()
        self._is_undone = False
        self._told = ""

    def _spans(self) -> dict[int, tuple[int, int]]:
        """Return the part of each log in which brokers may remove messages."""
        logs = find_ability(self.view.cluster, TruncatesLogs)
        return dict(logs.log_spans(self._topic)) if logs and removes(self.params) else {}

    def apply(self) -> None:
        self._admin.change_settings(self._topic, self.params.config)

    def proof(self) -> Proof:
        """Return the settings in force, as brokers report them; for retention also where each log
        begins now.
        """
        now = self._admin.settings(self._topic, list(self.params.config))
        changed = {k: [self._before[k], v] for k, v in now.items() if v == self.params.config[k]}
        changed = {key: pair for key, pair in changed.items() if pair[0] != pair[1]}
        text = ", ".join(f"{key}: {old} -> {new}" for key, (old, new) in changed.items())
        self._told = text or self._told
        if not removes(self.params):
            return Proof(
                bool(changed), f"{self._topic}: {text or 'as before'}", {"changed": changed}
            )
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
    """Change settings of topics that are in use, and put them back after `for`."""

    kind = "change-config"
    said = frozenset({*TopicFault.said, "config"})
    abilities = (ChangesTopics, HasPlacement)
    params = ChangeConfigParams

    def complete(self, params: ChangeConfigParams, inventory: Inventory) -> ChangeConfigParams:
        params = self._aimed(params, inventory)
        topic = inventory.topic(params.topic)
        copies = topic.replication if topic else 1
        for key, why in system_of(inventory.system).change_problems(copies, params.config):
            raise StepProblem("config", f"{key}={params.config[key]}: {why}")
        if removes(params) and any(
            name.startswith("transactions:") for name in inventory.coordinated
        ):
            raise StepProblem(
                "config", "transactions of which a part was removed cannot be judged as a whole"
            )
        return params

    def _aimed(self, params: ChangeConfigParams, inventory: Inventory) -> ChangeConfigParams:
        """Return the parameters with their target: a topic, or the namespace."""
        if not system_of(inventory.system).changes_namespace:
            return super().complete(params, inventory)
        if params.topic not in ("", _NAMESPACE):
            raise StepProblem(
                "topic", "settings are of the run's namespace, so of all topics: leave it out"
            )
        return params.model_copy(update={"topic": _NAMESPACE})

    def abilities_for(self, params: ChangeConfigParams) -> tuple[type, ...]:
        return (*self.abilities, TruncatesLogs) if removes(params) else self.abilities

    def choices(self, params: ChangeConfigParams) -> list[str]:
        return [", ".join(f"{key}={value}" for key, value in params.config.items())]

    def commands(self, params: ChangeConfigParams, inventory: Inventory) -> list[str]:
        settings = ", ".join(f"{key}={value}" for key, value in params.config.items())
        request = system_of(inventory.system).change_request.format(topic=params.topic)
        return [
            f"{request}: {settings}",
            f"after {params.for_:g} s: as before",
        ]

    def prepare(self, params: ChangeConfigParams, view: ClusterView, draw: int) -> ConfigChanged:
        return ConfigChanged(view, params.topic, params)
