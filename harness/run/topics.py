"""The topics of a plan on a cluster: made and working, or gone again."""

from __future__ import annotations

from harness.contracts.plan import Plan
from harness.plan.hours import retained_s
from harness.protocols.cluster import Admin, HasNamespaces, NamesTopics, TopicSettings
from harness.run.worker_specs import group_id
from harness.systems import SYSTEMS


def make_topics(admin: Admin, plan: Plan) -> None:
    """Create them in the namespace of the run, if there is one, and wait until each works; on a cluster that
    others use too, under their addresses.

    Raises:
        UsageError, EnvironmentNotReady: as the admin's ``create_topics`` and ``wait_ready``.
    """
    enter_topics(admin, plan)
    kept = SYSTEMS[plan.system].retention(retained) if (retained := retained_s(plan)) else {}
    admin.create_topics(
        [TopicSettings(t.name, t.partitions, t.replication, {**kept, **t.config}) for t in plan.topics]
    )
    names = [topic.name for topic in plan.topics]
    admin.wait_ready(names, timeout_s=plan.limits["ready"], run_tag=plan.run_tag)


def enter_topics(admin: Admin, plan: Plan) -> None:
    """Let an admin know the topics, there or to be made, by the names that brokers have for them."""
    if isinstance(admin, NamesTopics):
        groups = {group_id(plan, consumer.group) for consumer in plan.consumers}
        admin.name_topics({topic.name: topic.address for topic in plan.topics}, sorted(groups))
    if isinstance(admin, HasNamespaces):
        admin.enter_namespace(plan.namespace)


def drop_topics(admin: Admin, plan: Plan) -> None:
    """Delete them, so that the next round can have fresh ones.

    Raises:
        BrokerstormError: the cluster cannot do that now.
    """
    if isinstance(admin, HasNamespaces):
        admin.drop_namespace(plan.namespace)
    else:
        admin.delete_topics([topic.name for topic in plan.topics])
