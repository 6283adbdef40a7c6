"""Connects to the servers; what is lost and found again are marks on the time line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.process import Session

log = logging.getLogger("nats")
#: How long an application waits for its first connection.
FIRST_S = 10.0
#: What the client raises.
CLIENT_ERRORS = (Error, OSError, ValueError, TypeError)


class Connection:
    """One connection, which is looked for again for ever.

    Args:
        changed: called when a connection was lost, or restored.
    """

    def __init__(
        self, session: Session, options: dict[str, Any], changed: Callable[[str], None]
    ) -> None:
        self._session = session
        self._options = options
        self._changed = changed
        self._last = ""
        self.reconnects = 0

    async def open(self) -> Client:
        spec = self._session.spec
        made = nats.connect(
            **{"max_reconnect_attempts": -1, "allow_reconnect": True, **self._options},
            servers=spec.bootstrap.split(","),
            name=spec.name,
            error_cb=self._error,
            disconnected_cb=self._lost,
            reconnected_cb=self._found,
        )
        try:  # the first connection is looked for as long as later ones are: for ever
            return await asyncio.wait_for(made, FIRST_S)
        except (TimeoutError, *CLIENT_ERRORS) as error:
            last = self._last or error_text(error)
            raise WorkerFailure(
                f"nats-py cannot connect to {spec.bootstrap}: {last}",
                hint="see the client's log (stderr.log)",
            ) from error

    async def _error(self, error: Exception) -> None:
        self._last = error_text(error)
        log.error("%s", self._last)
        self._session.report.error(type(error).__name__, error_text(error))

    async def _lost(self) -> None:
        log.warning("the connection is lost")
        self._session.report.event("disconnect", "the client lost its connection")
        self._changed("the connection is lost")

    async def _found(self) -> None:
        log.warning("connected again")
        self.reconnects += 1
        self._session.report.event("connect", "the client is connected again")
        self._changed("connected again")
