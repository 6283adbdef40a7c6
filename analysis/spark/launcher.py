"""Starts Spark on a Java that lacks a module which Spark's own launcher always asks for.

The launcher adds the vector API, an incubator module, to every command line; a JVM that does not
have it refuses to start. Spark works without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # as a program it finds nothing of ours
    from harness.toolchains.java import Java

_MODULE: Final = "jdk.incubator.vector"
_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"


def launcher_of(java: Java, folder: Path) -> str | None:
    """Return the folder that pyspark uses as Spark's home when it starts a JVM; None for its own.

    Args:
        folder: where such a home is made.
    """
    if not java.lacks(_MODULE):
        return None
    program = folder / "home" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{__file__}" "{java.path}" "$@"\n')
    program.chmod(0o755)
    return str(folder / "home")


def command_of(java: str, spark: Path, arguments: list[str]) -> list[str]:
    """The command that Spark's launcher makes of its arguments, less the module.

    Raises:
        CalledProcessError: the launcher refuses them; what it says is on stderr.
    """
    launcher = [
        java,
        "-Xmx128m",
        "-cp",
        f"{spark}/jars/*",
        "org.apache.spark.launcher.Main",
        _CLASS,
    ]
    core = next((spark / "jars").glob("spark-core_*.jar")).name
    surroundings = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "SPARK_SCALA_VERSION": core.split("_")[1].split("-")[0],
    }
    made = subprocess.run(
        [*launcher, *arguments], stdout=subprocess.PIPE, check=True, env=surroundings
    )
    # What it prints before a zero byte in a line of its own is for people.
    words = made.stdout.rpartition(b"\0\n")[2].split(b"\0")
    return [
        os.fsdecode(word) for word in words if word and word != f"--add-modules={_MODULE}".encode()
    ]


def main(java: str, *arguments: str) -> None:
    """Become Spark's JVM."""
    import pyspark

    spark = Path(pyspark.__file__).parent
    os.environ["SPARK_HOME"] = str(spark)
    command = command_of(java, spark, list(arguments))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
