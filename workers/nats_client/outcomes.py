"""Maps exceptions of nats-py to outcomes of a send: fail (certainly not stored) or info (unknown),
in doubt info. An unanswered publish is info.

Sources: nats/aio/client.py (`publish`, `request`: what is looked at before anything is written),
nats/js/client.py (`publish`, `publish_async`), and the server's jetstream_cluster.go with its
errors.json (what is refused before it is proposed).
"""

from __future__ import annotations

from nats import errors
from nats.js import errors as js
from worker_kit.layouts import FAIL, INFO

#: A server says so of a publish that no server took.
_NOT_SENT = (
    errors.MaxPayloadError,
    errors.BadSubjectError,
    errors.OutboundBufferLimitError,
    errors.NoRespondersError,
    js.NoStreamResponseError,
    js.TooManyStalledMsgsError,
)
#: `err_code` with which a stream refuses a message before it has it.
_REFUSALS = frozenset({10023, 10047, 10054, 10060, 10070, 10071, 10097, 10109})


def outcome(error: BaseException, *, refused: bool) -> int:
    """Outcome of a send; ``refused`` by the call itself."""
    if isinstance(error, _NOT_SENT) or (
        refused and isinstance(error, errors.ConnectionClosedError)
    ):
        return FAIL
    return FAIL if getattr(error, "err_code", None) in _REFUSALS else INFO
