"""Faults: compile(steps, seed) -> timeline; inject, prove the effect, heal; the on-disk ledger.

inventory = faults.inventory_of(topics=plan.topics, nodes=names)
timeline = faults.compile(scenario.faults, inventory, seed=7, load_s=60)
faults.refuse_unsupported(timeline, cluster)
injector = faults.Injector(timeline, cluster, run, on_event=progress.fault)
"""

from faults.engine.injector import Injector
from faults.engine.ledger import heal_from_ledger
from faults.engine.once import inject_once
from faults.engine.replay import load_replay
from faults.kit.params import inventory_of
from faults.schedule.drawing import change_step, draw_step, drawable
from faults.schedule.reference import kinds, schema
from faults.schedule.timeline import (
    Firing,
    Timeline,
    commands_of,
    compile,
    describe,
    described,
    needs_of,
    refuse_unsupported,
)

__all__ = [
    "Firing",
    "Injector",
    "Timeline",
    "change_step",
    "commands_of",
    "compile",
    "describe",
    "described",
    "draw_step",
    "drawable",
    "heal_from_ledger",
    "inject_once",
    "inventory_of",
    "kinds",
    "load_replay",
    "needs_of",
    "refuse_unsupported",
    "schema",
]
