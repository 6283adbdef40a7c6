"""One Spark session for all tests that need a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from analysis.spark.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("local[2]")
    yield session
    close_session(session)
