"""The text of an error of pika, for the admins of systems that are asked by it."""

from __future__ import annotations


def reason_of(error: BaseException) -> str:
    """Return the reason of the attempt that failed: the client nests errors in errors."""
    while isinstance(
        inside := getattr(error, "exception", None) or next(iter(error.args), None), BaseException
    ):
        error = inside
    said = "; ".join(str(one) for one in error.args)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
