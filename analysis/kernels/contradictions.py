"""Streams whose record contradicts itself: their log holds two different messages at one place.

One of the two, or the place, is wrong, and it is unknown which. So the stream counts as read only
up to there, and what rests on the rest of its log is not proved.
"""

from __future__ import annotations

from dataclasses import replace

from analysis.capture.bucket import Bucket, contradicted
from analysis.kernels.labels import place_text


def contradictions(bucket: Bucket) -> tuple[str, ...]:
    """A sentence for each such stream, with its first place."""
    log = bucket.log
    told = []
    for stream, row in sorted(contradicted(bucket).items()):
        place = place_text(*(int(log[key][row]) for key in ("position", "ledger", "batch")))
        both = " and ".join(
            "/".join(str(int(log[key][i])) for key in ("instance", "lane", "seq"))
            for i in (row - 1, row)
        )
        told.append(f"{bucket.context.stream_name(stream)} holds both {both} at position {place}")
    return tuple(told)


def as_far_as_certain(bucket: Bucket) -> Bucket:
    """The bucket with such streams read up to their first such place only."""
    found = contradicted(bucket)
    if not found:
        return bucket
    context = bucket.context
    bounds = dict(context.bounds)
    for stream, row in found.items():
        known = context.stream_bounds(stream)
        # In entries of ledgers that distance is unknown: nothing of the stream is certain.
        read_to = int(bucket.log["position"][row]) if context.has_offsets else 0
        bounds[stream] = replace(known, end=max(known.end, read_to + 1), read_to=read_to)
    return replace(bucket, context=replace(context, bounds=bounds))
