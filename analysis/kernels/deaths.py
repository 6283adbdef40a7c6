"""Finds clients that gave themselves up or crashed, and applications that ended or stalled. It
looks at no message, and runs once, on the driver."""

from __future__ import annotations

import numpy as np

from analysis.capture.context import ApplicationFacts, Context, Instance, SessionFacts
from analysis.capture.deaths import ASKED, CRASHED, FENCED, Death
from analysis.kernels.class_hits import NO_MESSAGE, ClassHits
from analysis.kernels.hits import BITS
from analysis.kernels.lies import lies_about
from analysis.kernels.partial import Episode, Partial, RawWitness

#: In the place of a bucket's number.
WHOLE_RUN = -1
#: What a worker says of the reason -> sub-kind of the class.
_SPLITS = {FENCED: "fenced", ASKED: "as configured", CRASHED: "crashed"}


def judge(context: Context, *, with_hits: bool = False) -> Partial:
    """client-died, one episode a client; stalls of applications, one episode each; and how many
    clients were there to die when a fault was applied."""
    episodes = [_episode(client, client.died, context) for client in context.clients if client.died]
    for application in context.applications:
        episodes += [_ended(application, death, context) for death in application.died]
        episodes += [_stalled(application, *stall, context) for stall in application.stalled]
    hits = tuple(map(_hit, episodes)) if with_hits else ()
    counts = {"clients_at_fault": _exposed(context)}
    return Partial(bucket=WHOLE_RUN, episodes=episodes, counts=counts, hits=hits)


def _hit(episode: Episode) -> ClassHits:
    own = {"instance": episode.instance, "session": episode.session, "t_ns": episode.first_ns}
    own |= {"unmet": sum(BITS[name] for name in episode.unmet)}
    columns = {name: np.array([own.get(name, value)]) for name, value in NO_MESSAGE.items()}
    return ClassHits.from_columns(episode.cls, (episode.split,), columns)


def _episode(client: Instance | SessionFacts, death: Death, context: Context) -> Episode:
    split = _SPLITS.get(death.why, "gave up")
    # A client that waits for brokers may give up when they never come back, and one that is given
    # a fatal error is right to give up; nothing excuses a crash.
    unmet = _excuses(context, death.t_ns) if split != "crashed" else ()
    crashed_in = f" in {death.where}" if death.where else ""
    witness = RawWitness(
        message=client.name,
        where=client.client or "its client",
        t_ns=death.t_ns,
        error=death.name,
        detail=(death.text or death.name) + crashed_in,
    )
    is_producer = isinstance(client, Instance)
    return Episode(
        cls="client-died",
        split=split,
        unmet=(*unmet, "own-name") if split == "fenced" else unmet,
        instance=client.number if is_producer else 0,
        lane=-1,
        stream=0,
        session=0 if is_producer else client.number,
        first_ns=death.t_ns,
        last_ns=death.t_ns,
        count=1,
        witnesses=(witness,),
    )


def _excuses(context: Context, died_ns: int) -> tuple[str, ...]:
    """The preconditions of this run that excuse a client or an application that gave up."""
    restored = _unrestored(context)
    told = any(lie.since_ns <= died_ns for lie in lies_about(context, "client-died"))
    told = told or any(  # a broker lacks messages that its disk had said to have kept
        fault.effective and fault.details.lied and fault.start_ns <= died_ns
        for fault in context.faults
    )
    return (*restored, "answers-kept") if told else restored


def _unrestored(context: Context) -> tuple[str, ...]:
    return () if context.readiness_restored else ("readiness-restored",)


def _ended(application: ApplicationFacts, death: Death, context: Context) -> Episode:
    """An instance that ended by itself."""
    at, who, unmet = death.t_ns, death.worker, _excuses(context, death.t_ns)
    return _of_application(application, "client-died", "ended", at, at, who, death.text, unmet)


def _stalled(
    application: ApplicationFacts, since_ns: int, until_ns: int, text: str, context: Context
) -> Episode:
    # After a false answer, a member may join with a new id while the brokers wait for its old id.
    is_told = any(lie.since_ns < until_ns for lie in lies_about(context, "stall"))
    unmet = (*_unrestored(context), "answers-kept") if is_told else _unrestored(context)
    own, split = application.name, "application"
    return _of_application(application, "stall", split, since_ns, until_ns, own, text, unmet)


def _of_application(
    application: ApplicationFacts,
    cls: str,
    split: str,
    first_ns: int,
    last_ns: int,
    who: str,
    text: str,
    unmet: tuple[str, ...],
) -> Episode:
    witness = RawWitness(
        message=who, where=f"application {application.name}", t_ns=first_ns, detail=text or split
    )
    return Episode(
        cls=cls,
        split=split,
        unmet=unmet,
        instance=0,
        lane=-1,
        stream=0,
        session=0,
        first_ns=first_ns,
        last_ns=last_ns,
        count=1,
        witnesses=(witness,),
    )


def _exposed(context: Context) -> int:
    """Clients that ran when a fault was applied, summed over the faults that took effect."""
    starts = [fault.start_ns for fault in context.faults if fault.effective]
    spans = [(0, _end(i, i.end_ns)) for i in context.instances.values()]
    spans += [(s.start_ns, _end(s, s.end_ns)) for s in context.sessions.values()]
    return sum(low <= t and (not end or t < end) for t in starts for low, end in spans)


def _end(client: Instance | SessionFacts, end_ns: int) -> int:
    """When it was of no further use; 0 = not known to have ended."""
    if client.died is None:
        return end_ns
    return min(end_ns or client.died.t_ns, client.died.t_ns)
