"""Words of other tools and what they are called in a scenario: for hints where one is typed, and a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OtherWord:
    """A key, option or kind of fault of another tool.

    Attributes:
        word: as the tool writes it.
        here: where it belongs in a scenario, or why it has no place in one; ends a sentence.
        is_fault: it is a kind of fault, or a key of a fault step.
    """

    word: str
    here: str
    is_fault: bool = False


_LOAD_CONSUMERS: Final = "`load.consumers.NAME"
_OPTIONS: Final = "`options` of the producer or consumer, or `options: {file: ...}`"
_PAYLOAD: Final = "`load.payload`"

#: Tool -> its words.
OTHER_WORDS: Final[dict[str, tuple[OtherWord, ...]]] = {
    "OpenMessaging Benchmark": (
        OtherWord("messageSize", _PAYLOAD),
        OtherWord("payloadFile", f"{_PAYLOAD}: a size; the content of messages is made here"),
        OtherWord("randomBytesRatio", "`load.payload: {bytes: ..., compressible: ...}`"),
        OtherWord("producerRate", "`load.rate`"),
        OtherWord("testDurationMinutes", "`load.duration`, such as `15m`"),
        OtherWord("warmupDurationMinutes", "`load.warm_up`, such as `1m`"),
        OtherWord("partitionsPerTopic", "`topics.NAME.partitions`"),
        OtherWord("replicationFactor", "`topics.NAME.replication`"),
        OtherWord("topicConfig", "`topics.NAME.config`"),
        OtherWord("producersPerTopic", "`load.producers.NAME.count`"),
        OtherWord("consumerPerSubscription", f"{_LOAD_CONSUMERS}.count`"),
        OtherWord("subscriptionsPerTopic", "several entries of `load.consumers`, each with its own `group`"),
        OtherWord("keyDistributor", "`load.producers.NAME.lanes: key`"),
        OtherWord("consumerBacklogSizeGB", f"{_LOAD_CONSUMERS}.joins_after`: how long messages pile up"),
        OtherWord("driverClass", "`client` of the producer or consumer"),
        OtherWord("commonConfig", _OPTIONS),
        OtherWord("producerConfig", _OPTIONS),
        OtherWord("consumerConfig", _OPTIONS),
    ),
    "kafka-producer-perf-test": (
        OtherWord("record-size", _PAYLOAD),
        OtherWord("num-records", "`load.rate` times `load.duration`"),
        OtherWord("throughput", "`load.rate`; without a limit: `load.unlimited: true`"),
        OtherWord("producer-props", "`options` of the producer"),
        OtherWord("producer.config", "`options: {file: producer.properties}`"),
        OtherWord("transaction-duration-ms", "`load.producers.NAME.transactions: {every: ...}`"),
    ),
    "pulsar-perf": (
        OtherWord("rate", "`load.rate`"),
        OtherWord("size", _PAYLOAD),
        OtherWord("num-topics", "`topics.NAME.count`"),
        OtherWord("num-producers", "`load.producers.NAME.count`"),
        OtherWord("num-consumers", f"{_LOAD_CONSUMERS}.count`"),
        OtherWord("num-messages", "`load.rate` times `load.duration`"),
        OtherWord("test-duration", "`load.duration`"),
        OtherWord("subscription-type", "`options: {subscriptionType: Shared}` of the consumer"),
        OtherWord("receiver-queue-size", "`options: {receiverQueueSize: ...}` of the consumer"),
        OtherWord("max-outstanding", "`options: {maxPendingMessages: ...}` of the producer"),
        OtherWord("batch-time-window", "`options: {batchingMaxPublishDelayMicros: ...}` of the producer"),
    ),
    "k6": (
        OtherWord("vus", "`load.producers.NAME.count`; the rate is `load.rate`, whatever the count"),
        OtherWord("iterations", "`load.rate` times `load.duration`"),
        OtherWord("stages", "`load.profile`"),
        OtherWord("thresholds", "`require`, such as `latency_p99: 500ms`"),
        OtherWord("gracefulStop", "`limits.drain`"),
        OtherWord("scenarios", "`variants`, or several entries of `load.producers`"),
    ),
    "Chaos Mesh": (
        OtherWord("pod-kill", "`fault: kill`", is_fault=True),
        OtherWord("container-kill", "`fault: kill`", is_fault=True),
        OtherWord("pod-failure", "`fault: kill` with `for`, or `fault: pause`", is_fault=True),
        OtherWord("delay", "`fault: latency` with `delay`", is_fault=True),
        OtherWord("loss", "`fault: packet-loss` with `share`", is_fault=True),
        OtherWord("netem", "`fault: latency`, `packet-loss` or `bandwidth`", is_fault=True),
        OtherWord("duplicate", "nothing: TCP hides packets that come twice", is_fault=True),
        OtherWord("corrupt", "nothing on the network; `fault: file-damage` damages files", is_fault=True),
        OtherWord("stress", "`fault: cpu-limit` or `memory-limit`", is_fault=True),
        OtherWord("stressors", "`fault: cpu-limit` or `memory-limit`", is_fault=True),
        OtherWord("io-latency", "`fault: slow-disk`", is_fault=True),
        OtherWord("time-offset", "`fault: clock-jump` with `by`", is_fault=True),
        OtherWord("timeOffset", "`fault: clock-jump` with `by`", is_fault=True),
        OtherWord("duration", "`for`, such as `for: 10s`", is_fault=True),
        OtherWord("latency", "`delay` of `fault: latency`", is_fault=True),
        OtherWord("correlation", "nothing: packets are lost independently of each other", is_fault=True),
        OtherWord("percent", "`share`, such as `0.1`", is_fault=True),
        OtherWord("mode", "`target`: a node, `random` or `all`", is_fault=True),
        OtherWord("selector", "`target`", is_fault=True),
        OtherWord("scheduler", "`at`, or `every` with `jitter`", is_fault=True),
        OtherWord("direction", "`way`", is_fault=True),
    ),
    "applications": (
        OtherWord("deliver_after", "nothing: producers of a run delay no message"),
        OtherWord("deliver_at", "nothing: producers of a run delay no message"),
        OtherWord(
            "pause", "nothing: consumers of a run pause no partition; `fault: client-freeze` stops one"
        ),
        OtherWord(
            "resume", "nothing: consumers of a run pause no partition; `fault: client-freeze` stops one"
        ),
        OtherWord("seek", "nothing: consumers of a run seek no position"),
        OtherWord("pattern", f"{_LOAD_CONSUMERS}.topics`: names; one of a topic with `count` stands for all"),
        OtherWord("topics_pattern", f"{_LOAD_CONSUMERS}.topics`: names; one with `count` stands for all"),
        OtherWord("reader", f"{_LOAD_CONSUMERS}.group`: consumers of a run read in a group or subscription"),
        OtherWord("auto_commit", f"{_LOAD_CONSUMERS}.commit: auto`"),
        OtherWord("auto_offset_reset", f"{_LOAD_CONSUMERS}.start: latest`"),
        OtherWord("group_id", f"{_LOAD_CONSUMERS}.group`"),
    ),
}


def other_word(word: object, *, in_fault: bool = False) -> str:
    """A sentence about a word of another tool for the end of a message; empty = it is none.

    Upper and lower case, and ``-`` or ``_``, make no difference.
    """
    asked = _plain(str(word))
    for tool, words in OTHER_WORDS.items():
        for each in words:
            if each.is_fault == in_fault and _plain(each.word) == asked:
                of = "" if tool == "applications" else f" of {tool}"
                return f"{each.word}{of}, here: {each.here.replace('`', '')}"
    return ""


def _plain(word: str) -> str:
    return word.replace("-", "").replace("_", "").replace(".", "").lower()
