"""Base of the faults on Pulsar's bundles: streams are closed at their owner, and loaded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from faults.kit.cluster_view import ClusterView
from faults.kit.injection import Instant
from faults.kit.params import Params
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof

#: Streams whose reload is looked at: each costs a request.
_SAMPLE: Final = 3


class Reload(Instant):
    """Closes streams and sees whether they were loaded anew, and by whom.

    Attributes:
        done: operations that the brokers carried out.
        failed: operations that they refused or did not answer, with the last of their words.
    """

    def __init__(
        self, view: ClusterView, targets: Sequence[str], streams: Sequence[str], params: Params
    ) -> None:
        super().__init__(view, targets, params)
        self.done, self.failed, self.why = 0, 0, ""
        self.streams = list(streams)
        step = max(1, len(self.streams) // _SAMPLE)
        self._sample = self.streams[::step][:_SAMPLE]
        self._before = {stream: view.bundles.incarnation(stream) for stream in self._sample}
        self.owners_before = self.owners()
        self._reloaded: set[str] = set()
        self._after: Mapping[str, str | None] = {}

    def owners(self) -> dict[str, str | None]:
        """Stream -> its owner now, of all streams that this is about."""
        topics = list(dict.fromkeys(stream.rpartition("-")[0] for stream in self.streams))
        states = self.view.placement.partition_states(topics)
        return {stream: states[stream].leader for stream in self.streams if stream in states}

    def _look(self) -> None:
        self._after = self.owners()
        for stream in self._sample:
            if stream in self._reloaded and self._after.get(stream):
                continue
            # Also loads it: without clients nothing else would.
            if self.view.bundles.incarnation(stream) != self._before[stream]:
                self._reloaded.add(stream)

    def moved(self) -> dict[str, list[str | None]]:
        """Streams with another owner than before: [before, after]."""
        return {
            stream: [old, self._after[stream]]
            for stream, old in self.owners_before.items()
            if self._after.get(stream) not in (None, old)
        }

    def proof(self) -> Proof:
        """Effective when a stream was loaded anew, by whomever."""
        if self.done:
            self._look()
        moved = self.moved()
        details = {
            "done": self.done,
            "failed": self.failed,
            "reloaded": sorted(self._reloaded),
            "looked_at": self._sample,
            "owners": moved
            or {s: [self.owners_before.get(s), self._after.get(s)] for s in self._sample},
        }
        return Proof(bool(self._reloaded), self.sentence(len(moved)), details)

    def sentence(self, moved: int) -> str:
        """Return what was done and seen, as text."""
        text = f"{self.done} unloads" if self.done != 1 else "unloaded"
        if self.failed:
            text += f", {self.failed} failed ({self.why})"
        text += f"; {len(self._reloaded)} of {len(self._sample)} streams looked at were loaded anew"
        return text + f", {moved} of {len(self.streams)} have another owner"

    def confirmed_acks(self) -> ConfirmedAcks:
        """A topic that is closed writes its cursors first. After a failed request it is unknown."""
        return "kept" if self.done and not self.failed else "unknown"

    def missing(self) -> str:
        self._look()
        unowned = [stream for stream in self._sample if self._after.get(stream) is None]
        return f"{unowned[0]} has no owner" if unowned else ""
