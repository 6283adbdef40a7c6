"""The applications of a plan."""

from __future__ import annotations

from typing import Final

from harness.contracts.plan import ApplicationPlan, DatabasePlan
from harness.rundir import path_below, resolved
from harness.scenario.application import OutputSpec
from harness.scenario.model import Scenario

#: Numbers of applications in the capture, which no consumer session reaches.
FIRST_SESSION: Final = 1_000_000_000


def application_plans(scenario: Scenario) -> list[ApplicationPlan]:
    """Make the plan of each application of a scenario."""
    plans = []
    for number, (name, spec) in enumerate(scenario.applications.items()):
        ready = (
            spec.ready.model_dump(exclude={"within"}, exclude_defaults=True) if spec.ready else {}
        )
        identity = (
            spec.identity.model_dump(by_alias=True, exclude_defaults=True) if spec.identity else {}
        )
        plans.append(
            ApplicationPlan(
                name=name,
                run=spec.run,
                image=spec.image or "",
                jars=spec.jars,
                packages=spec.packages,
                env={key: _text(value) for key, value in spec.env.items()},
                folder=str(resolved(path_below(scenario.folder, spec.start_in))),
                instances=spec.instances,
                ready=ready,
                ready_within_s=spec.ready.within if spec.ready else 0.0,
                stop_signal=spec.stop.number,
                stop_within_s=spec.stop.within,
                cpu_cores=spec.limits.cpu,
                memory_bytes=spec.limits.memory,
                restarts=spec.restarts,
                source=spec.from_,
                to=spec.to.topic or "",
                to_file=spec.to.file or "",
                to_sql=_database(spec.to),
                group=spec.group or name,
                session=FIRST_SESSION + number,
                identity=identity,
                makes=spec.makes,
                promise=spec.promise,
                order=spec.order,
            )
        )
    return plans


def _database(to: OutputSpec) -> DatabasePlan | None:
    if to.sql is None:
        return None
    return DatabasePlan(
        url=to.sql,
        query=to.query.strip().rstrip(";"),
        password=to.password.model_dump(exclude_defaults=True) if to.password else {},
        time=to.time,
        position=to.position,
    )


def _text(value: str | bool | float) -> str:
    """A value of the environment as a program reads it: ``true`` of YAML is the text true."""
    return str(value).lower() if isinstance(value, bool) else str(value)
