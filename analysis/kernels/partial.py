"""The judgement of one bucket: episodes with exact counts and a few raw witnesses, mergeable.

An **episode** is the unit of attribution: messages of one class, producer instance and lane whose
times are less than `GAP_NS` apart. Ten thousand messages lost in one kill are one episode a lane,
and one observation when asking whether kills cause losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analysis.findings import SequenceStep
from analysis.histogram import Histogram
from analysis.kernels.atoms import Atoms
from analysis.kernels.changes import Because
from analysis.kernels.class_hits import ClassHits
from analysis.kernels.lookup import Ints
from analysis.kernels.windows import WindowCounts

#: Hits of one class and lane further apart than this are separate episodes.
GAP_NS = 1_000_000_000
#: Episodes kept apart for each (bucket, class); the rest is folded into a few rows with exact
#: counts.
MAX_EPISODES = 2_000
#: The largest and earliest of them keep witnesses: more than a report shows of a class.
WITNESS_EPISODES = 40
WITNESSES_AN_EPISODE = 5
#: Steps on either side of a witness.
STEPS_AROUND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCause:
    """The view of a stream's leaders on some messages of an episode (`analysis.kernels.changes`).

    Attributes:
        term, next, other: indexes into the terms of the stream, -1 = none.
        late: acknowledged after the term had ended.
        low, high: lowest and highest place, position and ledger: acknowledged, or the first copy.
        again: place of the lowest one's second copy.
    """

    because: Because
    stream: int
    term: int
    next: int
    other: int
    late: bool
    count: int
    first_ns: int
    last_ns: int
    low: tuple[int, int]
    high: tuple[int, int]
    again: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWitness:
    """One concrete message (or window), without fault proximity and final wording.

    Attributes:
        message: ``instance/lane/seq`` or ``instance/lane/seq.attempt``; a row without an identity
            of ours is named ``stream@position``.
        where: lane text, and the stream where that differs.
        detail: what is particular to this witness, for its sentence; may be empty.
        symptoms: other things the same root cause did to the same message.
        cause: what its stream's leaders say of it.
    """

    message: str
    where: str
    t_ns: int
    outcome: str = ""
    error: str = ""
    acked_position: str = ""
    detail: str = ""
    around: tuple[SequenceStep, ...] = ()
    symptoms: tuple[str, ...] = ()
    cause: RawCause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Hits of one class and split in one (instance, lane) with gaps below `GAP_NS`.

    Attributes:
        unmet: names of `analysis.classes.PRECONDITIONS` that do not hold; empty = proved.
        instance: producer instance, 0 when the class concerns none.
        lane: -1 when it concerns none.
        stream: of the first hit; 0 unknown.
        session: consumer session, 0 when the class is about the log.
        count: messages (or windows), exact.
        windows: the part of ``count`` with a time, by stream and window.
        causes: what the leaders of its streams say of the messages; empty for classes that are not
            asked.
        episodes: 1; more in a row that folds episodes beyond `MAX_EPISODES`.
    """

    cls: str
    split: str
    unmet: tuple[str, ...]
    instance: int
    lane: int
    stream: int
    session: int
    first_ns: int
    last_ns: int
    count: int
    windows: WindowCounts = ()
    causes: tuple[RawCause, ...] = ()
    episodes: int = 1
    witnesses: tuple[RawWitness, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """The judgement of one bucket.

    ``counts``: exact sums, not only of anomalies (attempted, ok, fail, info, info_stored, open
    ...). ``evidence``: by class, how many of its hits lack which precondition. ``given``: by
    consumer group, how often a message was handed to it; probes are not counted. ``given_again``:
    by consumer group, how many of these deliveries repeat a message. ``delays``: by consumer group,
    how long after they were due messages were handed to it (one step). ``outputs``: by application,
    its outputs that name an input; ``outputs_again``: those that are not the first of their input;
    ``output_delays``: how long after they were due inputs had their first output, and ``flows``:
    inputs that came less first outputs, both by step of `kernels.applications.flow_grid`.
    ``redelivered``: by consumer group, how often one message was handed to it again, the most of
    all. ``moved``: by consumer group, how often one of its partitions moved to another member
    (`kernels.moves`).
    ``hits``: every one of them, if that was asked for. ``atoms``: for the second pass over
    transactions.
    """

    bucket: int
    episodes: list[Episode] = field(default_factory=list)
    evidence: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    given_again: Mapping[str, int] = field(default_factory=dict)
    delays: Mapping[str, Histogram] = field(default_factory=dict, compare=False)  # of arrays
    outputs: Mapping[str, int] = field(default_factory=dict)
    outputs_again: Mapping[str, int] = field(default_factory=dict)
    output_delays: Mapping[str, Histogram] = field(default_factory=dict, compare=False)  # of arrays
    flows: Mapping[str, Ints] = field(default_factory=dict, compare=False)
    redelivered: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    hits: tuple[ClassHits, ...] = ()
    atoms: Atoms | None = None
