"""Colours and hatches: which of them a series or a kind of fault has, on every page and in every
chart.

Colours are Okabe and Ito's (distinct with every common colour blindness) and two more. A kind of
fault has its look by its name, so that it is the same in all runs; no two kinds share colour and
hatch.
"""

from __future__ import annotations

from dataclasses import dataclass

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#808080"
_BROWN, _OLIVE, _ROSE = "#9C6B3F", "#A39100", "#882255"
INK = "#30363d"  # the page's script repaints axes and labels for a dark background

_HATCHES = (
    "right_diagonal_line",
    "left_diagonal_line",
    "dot",
    "vertical_line",
    "horizontal_line",
    "cross",
    "diagonal_cross",
    "ring",
)
#: Kinds of one colour do alike things; their hatches tell them apart.
_FAMILIES = {
    PURPLE: (
        "kill",
        "controller-kill",
        "client-kill",
        "power-loss",
        "file-damage",
        "io-error",
        "fsync-lies",
    ),
    _BROWN: (
        "restart",
        "rolling-restart",
        "rolling-upgrade",
        "rolling-downgrade",
        "client-restart",
        "scale",
    ),
    ORANGE: ("pause", "client-freeze", "output-fault"),
    SKY: (
        "leader-move",
        "preferred-election",
        "mastership-move",
        "transfer",
        "unload",
        "unload-storm",
        "split-bundle",
    ),
    GREEN: (
        "partition",
        "blackhole",
        "connection-close",
        "connection-reset",
        "packet-loss",
        "latency",
        "bandwidth",
        "name-change",
    ),
    _ROSE: (
        "truncate",
        "reassign",
        "change-config",
        "grow-partitions",
        "recreate-topic",
        "add-broker",
        "remove-broker",
        "add-controller",
        "remove-controller",
    ),
    _OLIVE: (
        "cpu-limit",
        "memory-limit",
        "disk-full",
        "slow-disk",
        "io-delay",
        "clock-jump",
        "clock-drift",
        "resource-alarm",
    ),
}


@dataclass(frozen=True, slots=True)
class KindLook:
    """Colour (CSS) and hatch pattern (Bokeh's name)."""

    colour: str
    hatch: str


LOOKS = {
    kind: KindLook(colour, hatch)
    for colour, kinds in _FAMILIES.items()
    for kind, hatch in zip(kinds, _HATCHES, strict=False)
}


def look_of(kind: str) -> KindLook:
    """The look of a kind of fault; grey for one that brokerstorm does not have."""
    return LOOKS.get(kind, KindLook(GREY, _HATCHES[sum(kind.encode()) % len(_HATCHES)]))
