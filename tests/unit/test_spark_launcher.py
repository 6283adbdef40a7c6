"""The command line of Spark's JVM where the Java has not all modules that Spark's launcher asks
for."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from analysis.spark.launcher import command_of, launcher_of
from harness.toolchains.java import Java, find_java


@pytest.mark.long
def test_the_command_of_sparks_launcher_less_one_module() -> None:
    spark, java = Path(pyspark.__file__).parent, find_java(17)
    made = command_of(java.path, spark, ["--conf", "spark.driver.memory=1g", "pyspark-shell"])
    assert made[-1] == "pyspark-shell"
    assert "-Xmx1g" in made
    assert "org.apache.spark.deploy.SparkSubmit" in made
    assert not [word for word in made if word.startswith("--add-modules")]


def test_a_java_with_all_modules_needs_no_launcher(tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    java = Java(str(home / "bin" / "java"), 17, "17")
    for modules, expected in (
        ("java.base jdk.incubator.vector", None),
        ("java.base", str(tmp_path / "home")),
    ):
        (home / "release").write_text(f'MODULES="{modules}"\n')
        assert launcher_of(java, tmp_path) == expected
    assert (tmp_path / "home" / "bin" / "spark-submit").stat().st_mode & 0o111
