"""The instances of an application that the user started: the members of its consumer group, as the
brokers report them."""

from __future__ import annotations

import logging
import time
from typing import Final

from harness.contracts.plan import ApplicationPlan, Plan
from harness.contracts.rows import ApplicationRow
from harness.errors import BrokerstormError, EnvironmentNotReady
from harness.protocols.cluster import Admin, HasCommittedOffsets, HasGroupMembers
from harness.run.worker_specs import group_id
from harness.waiting import wait_until

_LOG = logging.getLogger(__name__)
_ASK_S: Final = 0.5


class GroupMembers:
    """All members that the group of an application has during a run. One thread at a time asks.

    Attributes:
        count: members when the brokers were last asked.
    """

    def __init__(self, plan: Plan, application: ApplicationPlan, admin: Admin) -> None:
        """
        Raises:
            EnvironmentNotReady: the cluster cannot report members and committed positions.
        """
        if not isinstance(admin, HasGroupMembers):
            raise EnvironmentNotReady(
                f"the brokers do not report the members of group {application.group}",
                hint=f"write the program into applications.{application.name}.run",
            )
        self._admin = admin
        self._offsets = admin if isinstance(admin, HasCommittedOffsets) else None
        self._application = application
        self._group = group_id(plan, application.group)
        self._streams = {
            stream for stream in plan.streams() if stream.rpartition("-")[0] == application.source
        }
        self._limit_s = plan.limits["ready"]
        #: Member id -> when it was first and last seen.
        self._seen: dict[str, list[int]] = {}
        self._now: set[str] = set()
        self._why = ""

    @property
    def count(self) -> int:
        """The number of members that the group has now."""
        return len(self._now)

    def wait_ready(self, *, is_new: bool) -> None:
        """Wait until the group has its members, every partition of the input is assigned to one,
        and no position is committed there that the log does not have.

        Args:
            is_new: False: the run is resumed, and the group has committed positions already.

        Raises:
            EnvironmentNotReady: this takes too long, or the group has read a topic of this name
                before.
        """
        if not wait_until(self._is_ready, self._limit_s, every_s=_ASK_S):
            raise EnvironmentNotReady(
                f"application {self._application.name}: {self._why} after {self._limit_s:g} s",
                hint=f"start it with the consumer group {self._group}; brokerstorm plan shows the names",
            )
        if self._offsets is None or not is_new:
            return
        source = self._application.source
        told = self._offsets.committed_offsets(self._group, [source])
        ends = self._admin.end_offsets([source])  # the run has written probes
        for stream, position in sorted(told.items()):
            if position > ends.get(stream, 0):
                raise EnvironmentNotReady(
                    f"application {self._application.name}: group {self._group} has committed"
                    f" position {position} of {stream}, which ends at {ends.get(stream, 0)}",
                    hint="restart the application: it holds positions of an earlier run",
                )

    def _is_ready(self) -> bool:
        members = self._ask()
        if members is None:
            return False
        wanted = self._application.instances
        missing = self._streams - {stream for own in members.values() for stream in own}
        if len(members) < wanted:
            self._why = f"group {self._group} has {len(members)} of {wanted} members"
        elif missing:
            self._why = f"no member of group {self._group} reads {min(missing)}"
        return len(members) >= wanted and not missing

    def look(self) -> None:
        """Ask the brokers for the members once; while they do not answer, the last ones count."""
        self._ask()

    def _ask(self) -> dict[str, list[str]] | None:
        """Return the members and their streams; None = the brokers do not answer."""
        try:
            members = self._admin.group_members(self._group)
        except BrokerstormError as error:
            _LOG.info("the members of group %s are not known now: %s", self._group, error)
            self._why = str(error)
            return None
        now_ns = time.monotonic_ns()
        for member in members:
            self._seen.setdefault(member, [now_ns, now_ns])[1] = now_ns
        self._now = set(members)
        return members

    def rows(self, *, drained: bool) -> list[ApplicationRow]:
        """Return a row for each member that was seen, in the order in which they came."""
        own = self._application
        return [
            ApplicationRow(
                name=own.instance_name(number),
                application=own.name,
                instance=own.instance_name(number),
                t_start_ns=first_ns,
                t_end_ns=last_ns,
                drained=drained,
            )
            for number, (first_ns, last_ns) in enumerate(self._seen.values(), start=1)
        ]
