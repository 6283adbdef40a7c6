"""Contract of workers on a cluster that asks who they are: refused, they say so, and print no
secret."""

from __future__ import annotations

from dataclasses import replace

from harness.connections.secret import Secret
from harness.contract.checks import check
from harness.contract.driving import NotHere, expect
from harness.contract.rig import Rig

#: What shells, JSON, JAAS and URLs write in another way is in it.
WRONG = "wr0ng-s3kr1t\"'\\;%41{x}"
MARK = b"wr0ng-s3kr1t"
#: Clients try a few times; a busy machine starts a JVM meanwhile.
REFUSED_S = 120.0


@check("producer")
def a_refused_secret_ends_it_before_ready_and_is_left_nowhere(rig: Rig) -> None:
    """Check that a wrong secret ends the worker before it is ready, and that no file or output has
    it."""
    security = rig.cluster.security
    if security is None or security.auth is None:
        raise NotHere("this cluster does not authenticate clients")
    wrong = replace(security, auth=replace(security.auth, secret=Secret(WRONG)))
    producer = rig.producer(rig.topic(), security=wrong)
    error = producer.refused(REFUSED_S)
    expect(error.text, "its error line says nothing")
    left = [
        path.name
        for path in producer.folder.rglob("*")
        if path.is_file() and MARK in path.read_bytes()
    ]
    expect(not left, f"the secret is in {', '.join(left)}")
