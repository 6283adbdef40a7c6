"""The topics of a plan on a cluster: made and working, or gone again."""

from __future__ import annotations

from harness.contracts.plan import Plan
from harness.plan.hours import topic_retained_s
from harness.protocols.cluster import Admin, HasNamespaces, NamesTopics, TopicSettings
from harness.run.worker_specs import group_id
from harness.systems import SYSTEMS


def make_topics(admin: Admin, plan: Plan) -> None:
    """Create them in the namespace of the run, if there is one, and wait until each works; on a
    cluster that others use too, under their addresses.

    Raises:
        UsageError, EnvironmentNotReady: as the admin's ``create_topics`` and ``wait_ready``.
    """
    enter_topics(admin, plan)
    settings = []
    for topic in plan.topics:
        retained = topic_retained_s(plan, topic)
        kept = SYSTEMS[plan.system].retention(retained) if retained else {}
        settings.append(
            TopicSettings(topic.name, topic.partitions, topic.replication, {**topic.config, **kept})
        )
    admin.create_topics(settings)
    names = [topic.name for topic in plan.topics]
    admin.wait_ready(names, timeout_s=plan.limits["ready"], run_tag=plan.run_tag)


def enter_topics(admin: Admin, plan: Plan) -> None:
    """Let an admin know the topics, there or to be made, by the names that brokers have for
    them."""
    if isinstance(admin, NamesTopics):
        groups = {group_id(plan, consumer.group) for consumer in plan.consumers}
        groups |= {
            group_id(plan, application.group)
            for application in plan.applications
            if not application.runs_elsewhere  # that group is theirs: it stays
        }
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
