"""recreate-topic: a topic is deleted and recreated under its name while clients are connected."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import StepProblem
from faults.kit.injection import Injection
from faults.kit.leadership import TopicFault
from faults.kit.params import Inventory, OneTopicParams, names
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement, Proof, RemakesTopics


class RecreateTopicParams(OneTopicParams):
    for_: Seconds = Field(
        2.0, alias="for", gt=0, description="time until the topic is created again"
    )


class Recreated(Injection):
    """A topic that is gone. Only brokers can make it again, so the heal asks them."""

    looks_last = True
    params: RecreateTopicParams

    def __init__(self, view: ClusterView, topic: str, params: RecreateTopicParams) -> None:
        super().__init__(view, [topic], params)
        self._topic = topic
        self._admin = view.ability(RemakesTopics)
        self._made = self._admin.made_of(topic)
        self._before = self._admin.topic_ids(topic)
        self._is_there = True

    def apply(self) -> None:
        self._is_there = False
        self.view.cluster.admin.delete_topics([self._topic])

    def proof(self) -> Proof:
        """No broker knows the id that the topic had; if they know another one, it was recreated."""
        now = self._admin.topic_ids(self._topic)
        text = f"{self._topic}: {names(self._before)} -> {names(now) if now else 'gone'}"
        return Proof(not now & self._before, text, {"remade": [self._topic]})

    def heal(self) -> None:
        if not self._is_there:
            self.view.cluster.admin.create_topics([self._made])
        self._is_there = True

    def is_undone(self) -> bool:
        return self._is_there

    def missing(self) -> str:
        if len(self._admin.topic_ids(self._topic)) != 1:
            return f"brokers do not agree which {self._topic} it is"
        return self.view.behind(self._topic)

    def confirmed_acks(self) -> ConfirmedAcks:
        """Return that confirmed acknowledgements are lost: the positions of groups are removed with
        the topic.
        """
        return "at-risk"


class RecreateTopic(TopicFault[RecreateTopicParams]):
    """Delete a topic in use and create it again under its name; its messages do not count as
    lost."""

    kind = "recreate-topic"
    samples = ()  # it removes what was acknowledged
    abilities = (RemakesTopics, HasPlacement)
    params = RecreateTopicParams

    def complete(self, params: RecreateTopicParams, inventory: Inventory) -> RecreateTopicParams:
        params = super().complete(params, inventory)
        if any(name.startswith("transactions:") for name in inventory.coordinated):
            raise StepProblem(
                "topic", "transactions of which a part is gone cannot be judged as a whole"
            )
        return params

    def choices(self, params: RecreateTopicParams) -> list[str]:
        return []

    def commands(self, params: RecreateTopicParams, inventory: Inventory) -> list[str]:
        again = (
            f"after {params.for_:g} s: CreateTopics {params.topic}, with the settings that it had"
        )
        return [f"DeleteTopics {params.topic}; wait until no broker in reach knows it", again]

    def prepare(self, params: RecreateTopicParams, view: ClusterView, draw: int) -> Recreated:
        return Recreated(view, params.topic, params)
