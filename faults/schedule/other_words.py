"""Kinds of fault and keys of Chaos Mesh, and what they are called in a fault step."""

from __future__ import annotations

from typing import Final

from harness.errors import called_here

#: Tool -> its words -> what to write in a fault step, or why there is no such fault.
FAULT_WORDS: Final[dict[str, dict[str, str]]] = {
    "Chaos Mesh": {
        "pod-kill": "`fault: kill`",
        "container-kill": "`fault: kill`",
        "pod-failure": "`fault: kill` with `for`, or `fault: pause`",
        "delay": "`fault: latency` with `delay`",
        "loss": "`fault: packet-loss` with `share`",
        "netem": "`fault: latency`, `packet-loss` or `bandwidth`",
        "duplicate": "nothing: TCP hides packets that come twice",
        "corrupt": "nothing on the network; `fault: file-damage` damages files",
        "stress": "`fault: cpu-limit` or `memory-limit`",
        "stressors": "`fault: cpu-limit` or `memory-limit`",
        "io-latency": "`fault: io-delay` with `delay`",
        "io-fault": "`fault: io-error` with `errno`",
        "errno": "`errno` of `fault: io-error`, such as `EIO`",
        "methods": "`operation` of `fault: io-error` or `io-delay`",
        "time-offset": "`fault: clock-jump` with `by`",
        "timeOffset": "`fault: clock-jump` with `by`",
        "duration": "`for`, such as `for: 10s`",
        "latency": "`delay` of `fault: latency`",
        "correlation": "nothing: packets are lost independently of each other",
        "percent": "`share`, such as `10%`",
        "mode": "`target`: a node, `random` or `all`",
        "selector": "`target`",
        "scheduler": "`at`, or `every` with `jitter`",
        "direction": "`way`",
    },
}


def fault_word(word: object) -> str:
    """A sentence about a word of another tool for the end of a message; empty = it is none."""
    return called_here(str(word), FAULT_WORDS)
