"""Which versions of the brokers the Maven repository can give.

    python -m bench.broker_versions [SYSTEM VERSION ...]

Asks Maven for every pom of each version, as a first start does, but for no jar: some seconds a
version. The answers of the versions below are in docs/howto/choose-the-brokers.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from harness.clusters import spec_of
from harness.errors import BrokerstormError
from harness.toolchains.maven import find_maven

VERSIONS = {
    "kafka": ("3.6.2", "3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.2"),
    "pulsar": (
        *("2.8.1", "2.9.5", "2.10.5", "2.11.4", "3.0.0", "3.2.4", "3.3.5", "3.3.6"),
        *("4.0.4", "4.0.6", "4.0.8", "4.1.0", "4.2.4"),
    ),
    "qpid": ("9.2.1", "10.1.0"),
}


def asked(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(system, version) as given, else every known one."""
    if arguments:
        yield from ((arguments[0], version) for version in arguments[1:])
    else:
        yield from (
            (system, version) for system, versions in VERSIONS.items() for version in versions
        )


def main() -> None:
    maven = find_maven()
    for system, version in asked(sys.argv[1:]):
        try:
            maven.check(spec_of(system, version).artifacts)
            answer = "resolves"
        except BrokerstormError as error:
            answer = str(error)
        print(f"{system:7} {version:8} {answer}", flush=True)


if __name__ == "__main__":
    main()
