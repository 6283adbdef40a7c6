"""Which clients of a plan may be ended in the middle of the load, or be told another time; why
others not."""

from __future__ import annotations

from harness.contracts.plan import ConsumerPlan, Plan, ProducerPlan
from harness.plan.hours import retained_s
from harness.systems import SYSTEMS
from harness.workers import load_worker


def endings(plan: Plan) -> dict[str, str]:
    """By name of each client, why it would not be possible to judge a run that ends its process;
    empty = it can be judged.

    A queue gives a message away for good when its consumer settles it by taking it. What such a
    process holds when it ends is in no journal and in no queue, and would look lost.
    """
    removes = SYSTEMS[plan.system].removes_settled
    is_queue = any(removes(topic.config) for topic in plan.topics)
    found = {
        p.name: f"{p.name} comes and goes by itself" if p.lives else "" for p in plan.producers
    }
    for consumer in plan.consumers:
        why = (
            f"{consumer.name} settles messages on receipt (settle: auto): those it holds look lost"
        )
        found[consumer.name] = why if is_queue and consumer.settle == "auto" else ""
    return {**found, **dict.fromkeys(_instances(plan), "")}


def _instances(plan: Plan) -> list[str]:
    """Names of the instances of applications."""
    return [name for application in plan.applications for name in application.instance_names]


def _in_containers(plan: Plan) -> dict[str, str]:
    """The instances that run in containers, whose wall clocks cannot be set: why."""
    why = (
        "{} runs in a container, whose image need not be able to load the library that sets clocks"
    )
    return {
        name: why.format(name)
        for application in plan.applications
        if application.image
        for name in application.instance_names
    }


def clockless(plan: Plan) -> dict[str, str]:
    """By name of each client whose wall clock cannot be set, or must not be: why."""
    if retained_s(plan) is not None:
        why = "brokers remove messages of this load by the time that clients give them: they would look lost"
        return {
            name: why for name in (*(client.name for client in plan.clients), *_instances(plan))
        }
    halves: list[ProducerPlan | ConsumerPlan] = [*plan.producers, *plan.consumers]
    return _in_containers(plan) | {
        half.name: f"{half.client} is in Go: its programs ask the kernel for the time, not a library"
        for half in halves
        if load_worker(half.client, plan.workers).language == "go"
    }


def client_roles(plan: Plan) -> dict[str, str]:
    """By name of each client, what its process is: producer, consumer, pipeline or application."""
    return {
        **dict.fromkeys(_instances(plan), "application"),
        **{client.name: "producer" for client in plan.scheduled},
        **{client.name: "consumer" for client in plan.readers},
        **{client.name: "pipeline" for client in plan.pipelines},
    }
