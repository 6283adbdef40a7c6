"""What a timeline would send, firing by firing, without a cluster: the text of `plan`. Pure."""

from __future__ import annotations

from faults.kinds import KINDS
from faults.schedule.timeline import Firing, Timeline


def commands_of(firing: Firing, timeline: Timeline) -> list[str]:
    """The commands of one firing in order; what is decided only then is named by its rule."""
    kind = KINDS[firing.kind]
    return kind.commands(kind.params.model_validate(dict(firing.params)), timeline.shape)
