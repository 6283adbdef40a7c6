"""preferred-election: every partition goes back to its first replica, as Kafka's own balancer
does."""

from __future__ import annotations

import random
from collections.abc import Mapping

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.leadership import LeaderChange, TopicFault
from faults.kit.params import Inventory, TopicParams
from harness.protocols.cluster import HasLeaders, PartitionState


class PreferredParams(TopicParams):
    pass


class PreferredElection(TopicFault[PreferredParams]):
    """Elect the preferred leader (first replica) wherever another node leads."""

    kind = "preferred-election"
    abilities = (HasLeaders,)
    params = PreferredParams

    def commands(self, params: PreferredParams, inventory: Inventory) -> list[str]:
        count = f"{params.partitions} of the partitions" if params.partitions else "every partition"
        return [f"ElectLeaders preferred {params.topic}: {count} that another replica leads then"]

    def prepare(self, params: PreferredParams, view: ClusterView, draw: int) -> LeaderChange:
        states = view.states_of(params.topic)
        wanted = _misled(states)
        if not wanted:
            raise FiringSkipped(
                f"every partition of {params.topic} is led by its preferred replica already"
            )
        count = min(params.partitions or len(wanted), len(wanted))
        chosen = random.Random(draw).sample(sorted(wanted), count)
        leaders = view.ability(HasLeaders)
        return LeaderChange(
            view,
            params.topic,
            states,
            {partition: wanted[partition] for partition in sorted(chosen)},
            params,
            call=lambda topic, elected: leaders.elect_preferred(topic, sorted(elected)),
        )


def _misled(states: Mapping[int, PartitionState]) -> dict[int, str]:
    """Partition -> preferred node, where that node could lead and does not."""
    preferred = {
        partition: state.replicas[0] for partition, state in states.items() if state.replicas
    }
    return {p: n for p, n in preferred.items() if states[p].leader != n and n in states[p].in_sync}
