"""Parts of libraries that are not public and that one small module each leans on.

Their versions are bounded from above: raise a bound in pyproject.toml with this test, after a look
at the release notes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import INPUT_CONVERTER  # type: ignore[import-untyped]
from pyspark import daemon
from pyspark.core.context import SparkContext
from pyspark.java_gateway import launch_gateway

from analysis.spark.gateway import _drop_sql_converters
from harness.systems.kafka.single import DescribeShareGroupOffsetsRequest

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())[
    "project"
]


@pytest.mark.parametrize("library", ["pyspark", "kafka-python"])
def test_the_next_minor_version_is_not_taken_unseen(library: str) -> None:
    wanted = next(text for text in PROJECT["dependencies"] if text.startswith(library))
    bound = re.search(r"<(\d+)\.(\d+)$", wanted)
    assert bound is not None, wanted
    major, minor = metadata.version(library).split(".")[:2]
    assert (int(major), int(minor) + 1) == (int(bound[1]), int(bound[2]))


def parameters(function: Callable[..., object]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_what_the_gateway_of_spark_leans_on() -> None:
    """analysis/spark/gateway.py"""
    assert SparkContext._gateway is None or hasattr(SparkContext._gateway, "proc")
    assert hasattr(SparkContext, "_jvm")
    assert hasattr(SparkContext, "_active_spark_context")
    assert "gateway" in parameters(SparkContext._ensure_initialized)
    assert {"conf", "popen_kwargs"} <= parameters(launch_gateway)
    assert "self._accumulatorServer" in inspect.getsource(SparkContext)


def test_only_our_gateway_lacks_the_converters_of_spark() -> None:
    """A program that calls us may give a session of its own a date or a value of NumPy."""
    importlib.import_module("pyspark.sql.types")  # registers them
    parameters = GatewayParameters(auto_convert=True, eager_load=False)
    ours = JavaGateway(gateway_parameters=parameters)
    before = list(INPUT_CONVERTER)
    _drop_sql_converters(ours)
    other = JavaGateway(gateway_parameters=parameters)
    assert other._gateway_client.converters == INPUT_CONVERTER == before
    assert {type(each) for each in before} > {type(e) for e in ours._gateway_client.converters}


def test_what_the_daemon_of_spark_leans_on() -> None:
    """analysis/spark/daemon.py"""
    assert not parameters(daemon.manager)
    assert "pid = os.fork()" in inspect.getsource(daemon.manager)


def test_what_the_admin_of_a_single_kafka_broker_leans_on() -> None:
    """harness/systems/kafka/single.py"""
    assert {"request", "node_id", "request_timeout_ms"} <= parameters(KafkaConnectionManager.send)
    assert "refresh_metadata_on_err" in parameters(KafkaConnectionManager.get_connection)
    assert {"net", "manager"} <= parameters(KafkaNetClient.__init__)
    assert parameters(NetworkSelector.__init__) >= {"configs"}
    assert "timeout_ms" in parameters(KafkaAdminClient._refresh_controller_id)
    assert DescribeShareGroupOffsetsRequest.API_KEY == 90  # from a description of ours
    source = inspect.getsource(KafkaAdminClient)
    assert "kafka_client" in source
    assert "self._manager" in source
