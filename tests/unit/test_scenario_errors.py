"""Bad scenario files: one line with the place, the key, the value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import Exit, ScenarioError
from harness.scenario.file import load_scenario
from harness.workers import known_workers

BAD = [
    ("", "bad.yaml: is empty"),
    ("# only a comment\n", "bad.yaml: is empty"),
    ("- a\n- b\n", "bad.yaml:1: a scenario is a mapping of key: value, got ['a', 'b']"),
    ("just text", "bad.yaml:1: a scenario is a mapping of key: value, got 'just text'"),
    ("name: x\nload: {rate: 1\n", "bad.yaml:3: not valid YAML: expected ',' or '}'"),
    ("name: x\n\tload: 1\n", "bad.yaml:2: not valid YAML: "),
    ("name: x\n---\nname: y\n", "bad.yaml:2: not valid YAML: "),
    ("name: !!python/object:os.system x", "bad.yaml:1: not valid YAML: "),
    ("name: x\nname: y\n", "bad.yaml:2: name: given twice, first on line 1"),
    (
        "name: x\nload:\n  rate: 5\n  rate: 6\n",
        "bad.yaml:4: load.rate: given twice, first on line 3",
    ),
    ("load: {rate: 5}", "bad.yaml:1: name: is missing"),
    (
        "name: x\nload:\n  rat: 5\n",
        "bad.yaml:3: load.rat: unknown key, got 5; did you mean rate? allowed: consumers, ",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {ids: 2}\n",
        "bad.yaml:5: load.producers.p.transactions: needs messages or every: when does one end?",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {messages: 5}\n"
        "      client: sarama\n      client_version: 1.36.0\n",
        "client_version: must be 1.37.0 or newer with transactions: sarama has none before, got '1.36.0'",
    ),
    (
        "name: x\nsystem: pulsar\ncluster: {config: {transactionCoordinatorEnabled: false}}\n"
        "load: {producers: {p: {client: pulsar-client-java, transactions: {messages: 5}}}}\n",
        "config.transactionCoordinatorEnabled: must be true with transactions: leave it out, got false",
    ),
    (
        "name: x\nsystem: pulsar\n"
        "load: {producers: {p: {client: pulsar-client, transactions: {messages: 5}}}}\n",
        "transactions: is not supported by the pulsar-client worker, got {'messages': 5}; supported: none",
    ),
    *(
        (
            "name: x\ntopics: {a: {}, b: {}, c: {}, many: {count: 2}}\nload:\n"
            f"  producers: {{p: {{topics: [a]}}}}\n  pipelines:\n    bill:\n      {{{pipeline}}}\n",
            f"load.pipelines.bill{problem}",
        )
        for pipeline, problem in (
            ("from: a", ".to: is missing"),
            ("from: a, to: d", ".to: is not declared under topics, got 'd'; known: a, b, c, many"),
            ("from: a, to: a", ".to: is the topic that it reads, got 'a'; must be another topic"),
            ("from: a, to: many", ".to: stands for 2 topics, got 'many'; must be one: count 1"),
            ("from: b, to: c", ".from: gets no message: nothing writes b, got 'b'"),
            (
                "from: a, to: b, client: kafka-python",
                ".client: has no pipeline worker, got 'kafka-python'",
            ),
            (
                "from: a, to: b, transactions: {}",
                ".transactions: needs messages or every: when does one end?, got {}",
            ),
            (
                "from: a, to: b, transactions: {messages: 5}, commit_every: 2s",
                ".commit_every: has no meaning with transactions, got '2s'; leave one of them out",
            ),
        )
    ),
    (
        "name: x\ntopics: {a: {}, b: {}}\nload:\n  pipelines:\n    bill: {from: a, to: b}\n",
        "load.producers.p.topics: must leave b out, which pipeline bill alone writes; others are a",
    ),
    (
        "name: x\ntopics: {a: {}, b: {}, c: {}}\nload:\n  producers: {p: {topics: [a]}}\n"
        "  pipelines:\n    one: {from: c, to: b}\n    two: {from: b, to: c}\n",
        "load.pipelines.one.from: gets no message: its pipelines read in a circle, got 'c'",
    ),
    (
        "name: x\ntopics: {a: {}, b: {}}\nload:\n  producers: {p: {topics: [a]}}\n"
        "  pipelines:\n    one: {from: a, to: b}\n    two: {from: a, to: b}\n",
        "load.pipelines.two.to: is written by pipeline one, got 'b'; each writes a topic of its own",
    ),
    (
        "name: x\ntopics: {a: {}, b: {}}\nsystem: pulsar\nload:\n  producers: {p: {topics: [a]}}\n"
        "  pipelines:\n    one: {from: a, to: b}\n",
        "load.pipelines.one: has no meaning on pulsar: its positions are not numbers, got",
    ),
    (
        "name: x\nload:\n  consumers:\n    c:\n      options: {group.protocol: Consumer}\n"
        "      client: kafka-clients\n      client_version: 3.9.1\n",
        "load.consumers.c.client_version: must be 4.0.0 or newer with group.protocol=Consumer, got '3.9.1'",
    ),
    (
        "name: x\ncluster: {version: 3.9.1}\nload:\n  consumers:\n    c:\n"
        "      options: {group.protocol: Consumer}\n      client: kafka-clients\n",
        "cluster.version: must be 4.0.0 or newer: kafka-clients asks for group.protocol=Consumer",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {messages: 5, ids: 64}\n",
        "load.producers.p.transactions.ids: must be at most 12, the lanes of this producer: a lane "
        "has one thread, got 64",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {messages: 5}\n      threads: 2\n",
        "load.producers.p.threads: must be 1 with transactions, got 2; transactions.ids has the threads",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {messages: 5}\n      when_full: fail\n",
        "load.producers.p.when_full: must be wait with transactions",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      client: kafka-clients\n"
        "      transactions: {messages: 5}\n      results: resent\n",
        "load.producers.p.results: must be checked or ignored with transactions",
    ),
    (
        "name: x\nload:\n  producers:\n    p:\n      transactions: {mesages: 5}\n",
        "transactions.mesages: unknown key, got 5; did you mean messages?",
    ),
    (
        "name: x\ntopics: {a: {partitions: 4, grows_to: 4}}\n",
        "topics.a.grows_to: must be above its 4 partitions, got 4",
    ),
    (
        "name: x\nsystem: pulsar\ntopics: {a: {grows_to: 40}}\n",
        "topics.a.grows_to: topics of pulsar are not made to grow here, got 40; leave it out",
    ),
    (
        "name: x\ntopics: {a: {grows_to: 40}, b: {}}\nload:\n  producers: {p: {topics: [a]}}\n"
        "  pipelines:\n    bill: {from: a, to: b}\n",
        "topics.a.grows_to: a pipeline makes its outputs by the number of partitions: leave it out, got 40",
    ),
    (
        "name: x\nlod: {}\n",
        "bad.yaml:2: lod: unknown key, got {}; did you mean load? allowed: about, ",
    ),
    ("name: x\nzzz: 1\n", "bad.yaml:2: zzz: unknown key, got 1; allowed: about, "),
    ("name: x\n1: 2\n", "keys must be text"),
    ("name: a b\n", "bad.yaml:1: name: must hold letters, digits, . _ - and start with"),
    ("name: 5\n", "bad.yaml:1: name: must be text (put it in quotes), got 5"),
    (
        "name: x\nsystem: rabbit\n",
        "bad.yaml:2: system: must be 'kafka', 'nats', 'pulsar', 'qpid' or 'rabbitmq', got 'rabbit'",
    ),
    ("name: x\nload: 5\n", "bad.yaml:2: load: must be a mapping of key: value, got 5"),
    ("name: x\nload:\n", "bad.yaml:2: load: must be a mapping of key: value, got nothing"),
    (
        "name: x\nload: {rate: 0}\n",
        "bad.yaml:2: load.rate: must be at least 1, or set load.unlimited: true",
    ),
    ("name: x\nload: {rate: -5}\n", "bad.yaml:2: load.rate: must be at least 0, got -5"),
    ("name: x\nload: {rate: 1000000000}\n", "load.rate: must be at most 2000000, got 1000000000"),
    (
        "name: x\nload: {rate: 1.5}\n",
        "load.rate: must be a whole number, or {at_most: 50000}, got 1.5",
    ),
    (
        "name: x\nload: {rate: yes}\n",
        "load.rate: must be a whole number, or {at_most: 50000}, got true",
    ),
    (
        "name: x\nload: {rate: fast}\n",
        "load.rate: must be a whole number, or {at_most: 50000}, got 'fast'",
    ),
    (
        "name: x\nload: {rate: {at_mots: 9}}\n",
        "load.rate: at_mots: unknown key; did you mean at_most?",
    ),
    ("name: x\nload: {rate: {at_least: 9}}\n", "load.rate: at_most is missing"),
    (
        "name: x\nload: {rate: {at_most: 0}}\n",
        "load.rate: at_most must be a whole number from 1 to 2000000",
    ),
    (
        "name: x\nload: {rate: {at_most: 5, at_least: 6}}\n",
        "load.rate: at_least must be at most at_most (5)",
    ),
    (
        "name: x\nload: {rate: {at_most: 5}, unlimited: true}\n",
        "load.rate: has no meaning with load.unlimited: true",
    ),
    (
        "name: x\nload: {rate: {at_most: 5}}\nrequire: {rate_ratio: 0.9}\n",
        "bad.yaml:3: require.rate_ratio: has no meaning with load.rate.at_most, which claims no rate",
    ),
    (
        "name: x\nrequire: {latency_p99: fast}\n",
        "require.latency_p99: must be a duration such as 500ms or 10s",
    ),
    (
        "name: x\nrequire: {outage: 0s}\n",
        "outage: must be a duration such as 500ms or 10s, more than 0",
    ),
    (
        "name: x\nrequire: {error_ratio: 10s}\n",
        "require.error_ratio: must be a ratio such as 0.1% or 0.001",
    ),
    (
        "name: x\nrequire: {error_ratio: 101%}\n",
        "must be a ratio such as 0.1% or 0.001, from 0 to 1, got '101%'",
    ),
    (
        "name: x\nrequire: {outage: {}}\n",
        "require.outage: needs at least one of overall, outside_faults",
    ),
    (
        "name: x\nrequire: {outage: {outside: 1s}}\n",
        "require.outage: outside: unknown key; did you mean outside_faults? allowed: overall, outside_faults",
    ),
    (
        "name: x\nrequire: {recovery: {outside_faults: 1s}}\n",
        "recovery.outside_faults: has no meaning without faults, which recoveries belong to, got '1s'",
    ),
    ("name: x\nload: {duration: 0}\n", "load.duration: must be more than 0, got 0"),
    ("name: x\nload: {duration: -1}\n", "load.duration: must be more than 0, got -1"),
    (
        "name: x\nload: {duration: soon}\n",
        "load.duration: must be a duration such as 10s, 250ms or 2m",
    ),
    (
        "name: x\nload: {duration: yes}\n",
        "load.duration: must be a duration such as 10s, 250ms or 2m",
    ),
    ("name: x\nload: {duration: .nan}\n", "load.duration: must be"),
    (
        "name: x\nload: {duration: 30d}\n",
        "load.duration: must be a duration such as 10s, 250ms or 2m",
    ),
    ("name: x\nload: {payload: 51}\n", "load.payload: must be at least 52, got 51"),
    (
        "name: x\nload: {payload: 52..2000000}\n",
        "load.payload: must be at most 1000000, got '52..2000000'",
    ),
    (
        "name: x\nload: {payload: 99..98}\n",
        "payload: must go from the smaller to the larger, as 100..10000",
    ),
    (
        "name: x\nload: {payload: {p50: 300}}\n",
        "load.payload: must have p50 and p99, or sizes: {200: 70%",
    ),
    ("name: x\nload: {payload: {p50: 300, p99: 200}}\n", "load.payload: p99 must be at least p50"),
    (
        "name: x\nload: {payload: {p50: 3, p99: 99}}\n",
        "p50 must be a number of bytes from 52 to 1000000",
    ),
    (
        "name: x\nload: {payload: {sizes: {60: 50%, 70: 40%}}}\n",
        "load.payload: the shares of sizes must add up to 100%, not 0.9",
    ),
    (
        "name: x\nload: {payload: {sizes: {60: all}}}\n",
        "load.payload: must be a ratio such as 0.1% or 0.001",
    ),
    (
        "name: x\nload: {payload: big}\n",
        "load.payload: must be a number of bytes such as 150, or a range",
    ),
    ("name: x\nload: {producers: {p: {threads: 0}}}\n", "threads: must be at least 1, got 0"),
    (
        "name: x\nload: {producers: {p: {threads: 13}}}\n",
        "threads: must be at most 12, the lanes of this producer: a lane has one thread, got 13",
    ),
    ("name: x\nload: {producers: {}}\n", "load.producers: needs at least 1, got {}"),
    (
        "name: x\nload: {producers: {p: {lanes: partitions}}}\n",
        "lanes: must be 'partition', 'key' or 'routed'",
    ),
    (
        "name: x\nload: {producers: {p: {count: 0}}}\n",
        "load.producers.p.count: must be at least 1, got 0",
    ),
    ("name: x\nload: {producers: {p: {share: .inf}}}\n", "share: must be a finite number, got inf"),
    (
        "name: x\nload: {producers: {p: {client: confluent-kafak}}}\n",
        "p.client: is not a known client, got 'confluent-kafak'; did you mean confluent-kafka?",
    ),
    (
        "name: x\nload: {producers: {p: {topics: [order]}}}\n",
        "load.producers.p.topics[0]: is not declared under topics, got 'order'; did you mean orders? known:",
    ),
    (
        "name: x\nload: {consumers: {c: {topics: [zzz]}}}\n",
        "load.consumers.c.topics[0]: is not declared under topics, got 'zzz'; known: orders",
    ),
    (
        "name: x\nload: {producers: {p: {options: {acks: [all]}}}}\n",
        "load.producers.p.options.acks: must be text, a number, or true or false, got ['all']",
    ),
    (
        "name: x\nload: {producers: {p: {options: {bootstrap.servers: h}}}}\n",
        "load.producers.p.options.bootstrap.servers: is set by brokerstorm itself: leave it out, got 'h'",
    ),
    (
        "name: x\nload: {consumers: {c: {options: {group.id: h}}}}\n",
        "load.consumers.c.options.group.id: is set by brokerstorm itself",
    ),
    (
        "name: x\nload: {producers: {p: {lanes: key, keys: 5}, q: {lanes: key, keys: 6}}}\n",
        "load.producers.q.keys: must be 5, as producer p has on orders, got 6",
    ),
    (
        "name: x\nload: {producers: {p: {lanes: routed}}}\nrequire: {keys: shared}\n",
        "bad.yaml:3: require.keys: needs a producer with lanes: key, got 'shared'",
    ),
    (
        "name: x\nload: {producers: {p: {lanes: key}}}\nrequire: {keys: once}\n",
        "require.keys: must be",
    ),
    ("name: x\ntopics: {}\n", "topics: needs at least 1, got {}"),
    ("name: x\ntopics: {a b: {}}\n", "topics.a b: a name holds letters, digits, . _ -"),
    ("name: x\ntopics: {a: {partitions: 0}}\n", "topics.a.partitions: must be at least 1, got 0"),
    ("name: x\ntopics: {a: {replication: 4}}\n", "topics.a.replication: must be at most 3, got 4"),
    (
        "name: x\ntopics: {a: {config: {retention.ms: 5}}}\n",
        "topics.a.config.retention.ms: must be -1, or 900000 or more: the audit needs the whole log, got 5",
    ),
    (
        "name: x\ntopics: {a: {config: {cleanup.policy: compact}}}\n",
        "load.producers.p.lanes: must be key: topic a is compacted, and takes no message without a key",
    ),
    (
        "name: x\ntopics: {a: {config: {cleanup.policy: 'compact,delete'}}}\n",
        "topics.a.config.cleanup.policy: must be delete or compact: the audit needs the whole log, "
        "got 'compact,delete'",
    ),
    (
        "name: x\nsystem: nats\ntopics: {a: {config: {retention: workqueue}}, b: {}}\n"
        "load: {consumers: {c: {client: nats.go}}}\n",
        "topics.a.config.retention: topic b keeps acknowledged messages, and a does not, got 'workqueue'",
    ),
    (
        "name: x\nsystem: nats\ntopics: {a: {config: {retention: workqueue}}}\n",
        "topics.a.config.retention: one group must read the topic, which removes what the group "
        "acknowledged, got 'workqueue'; no consumer reads it",
    ),
    (
        "name: x\nsystem: nats\ntopics: {a: {config: {retention: interest}}}\n"
        "load: {consumers: {c: {client: nats.go}, d: {client: nats.go, group: other}}}\n",
        "which removes what the group acknowledged, got 'interest'; groups group, other read it",
    ),
    (
        "name: x\nsystem: nats\ntopics: {a: {config: {retention: interest}}}\n"
        "load: {consumers: {c: {client: nats.go, settle: none}}}\n",
        "load.consumers.c.settle: must be ack: topic a keeps a message until it is acknowledged, got 'none'",
    ),
    (
        "name: x\nsystem: nats\ntopics: {a: {config: {retention: interest}}}\n"
        "load: {consumers: {c: {client: nats.go, joins_after: 2}}}\n",
        "topics.a.config.retention: removes what comes before its first consumer, got 'interest'; leave",
    ),
    (
        "name: x\ntopics: {a: {replication: 1, config: {min.insync.replicas: 2}}}\n",
        "topics.a.config.min.insync.replicas: must be a number from 1 to replication (1), got 2",
    ),
    (
        "name: x\ncluster: {config: {min.insync.replicas: a}}\n",
        "min.insync.replicas: must be 1, 2 or 3",
    ),
    (
        "name: x\nsystem: rabbitmq\ncluster: {topology: mirrored}\n",
        "cluster.topology: must be a topology (pulsar: small, bookies-3; qpid: node, memory, group; other",
    ),
    (
        "name: x\ncluster: {config: {a b: 1}}\n",
        "cluster.config.a b: is not a name of a setting: letters, digits, . _ and -, got 1",
    ),
    (
        "name: x\nsystem: rabbitmq\naudit: every-replica\n",
        "audit: is not possible on rabbitmq, got 'every-replica'; write leader: replicas can be read on",
    ),
    (
        "name: x\ncluster: {version: 4.1}\n",
        "cluster.version: must be text (put it in quotes), got 4.1",
    ),
    (
        "name: x\nsystem: []\n",
        "system: must be 'kafka', 'nats', 'pulsar', 'qpid' or 'rabbitmq', got []",
    ),
    (
        'name: x\ncluster: {config: {log.dirs: "a\\rlisteners=PLAINTEXT://:1"}}\n',
        "cluster.config.log.dirs: is not a setting of one line",
    ),
    ('name: x\ncluster: {config: {log.dirs: "a\\\\"}}\n', "log.dirs: is not a setting of one line"),
    ("name: x\nfaults: {}\n", "faults: must be a list, got {}"),
    ("name: x\nfaults: [kill]\n", "faults[0]: must be a mapping of key: value, got 'kill'"),
    ("name: x\nrounds: 0\n", "rounds: must be at least 1, got 0"),
    (
        "name: x\nrequire: {delivery: always}\n",
        "must be 'durable' or 'as-configured', got 'always'",
    ),
    (
        "name: x\nlimits: {recovry: 1}\n",
        "limits.recovry: unknown key, got 1; did you mean recovery?",
    ),
    (
        "name: x\nvariants:\n  a:\n    expect: acked-lsot\n",
        "bad.yaml:4: variants.a.expect: is not a class, got 'acked-lsot'; did you mean acked-lost?",
    ),
    (
        "name: x\nvariants:\n  a:\n    override:\n      load:\n        rat: 1\n",
        "bad.yaml:6: variants.a.override.load.rat: unknown key, got 1; did you mean rate?",
    ),
    (
        "name: x\nvariants: {a: {override: {load: {rate: many}}}}\n",
        "bad.yaml:2: variants.a.override.load.rate: must be a whole number, or {at_most: 50000}, got 'many'",
    ),
    (
        "name: x\nvariants: {a: {override: {rounds: 3}}}\n",
        "bad.yaml:2: variants.a.override.rounds: a variant cannot change rounds",
    ),
    ("name: x\nvariants: {a: {override: 3}}\n", "variants.a.override: must be a mapping"),
    (
        # The override takes a topic away that the base produces to: the base's line, and whose
        # fault it is.
        "name: x\ntopics: {a: {}, b: {}}\nload:\n  producers:\n    p:\n      topics: [b]\n"
        "variants: {v: {override: {topics: {b: null}}}}\n",
        "bad.yaml:6: load.producers.p.topics[0]: is not declared under topics, "
        "got 'b'; known: a (in variant v)",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:50] for _, message in BAD])
def test_one_line_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, clients=known_workers, classes=["acked-lost"])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("load.rate", "--set load.rate: must be KEY=VALUE"),
        ("=5", "--set =5: must be KEY=VALUE"),
        ("load.rate=[", "--set load.rate=[: the value is not valid YAML"),
        ("load.rat=5", "--set load.rat=5: load.rat: unknown key, got 5; did you mean rate?"),
        ("load.rate.x=5", "--set load.rate.x=5: load.rate holds a value, not keys"),
        ("faults[3].at=5", "--set faults[3].at=5: faults has items 0 to 0"),
        (
            "topics.b!new.partitons=5",
            "--set topics.b!new.partitons=5: topics.b.partitons: unknown key, got 5; did you",
        ),
        (
            "topics.order.partitions=5",
            "--set topics.order.partitions=5: topics has no entry 'order'",
        ),
        ("load.producers.shop.count=2", "load.producers has no entry 'shop'"),
        (
            "variants.v.override.load.rate=x",
            "variants.v.override.load.rate: must be a whole number, or {at_most: 50000}, got 'x'",
        ),
    ],
)
def test_set_errors_name_the_option(tmp_path: Path, override: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: x\nload: {rate: 5}\nfaults: [{fault: kill, at: 1}]\nvariants: {v: {}}\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, overrides=[override])
    assert message in str(caught.value)


def test_set_on_a_file_with_something_else_in_place_of_a_map(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: x\ntopics: 5\n")
    with pytest.raises(ScenarioError, match="topics holds a value, not keys"):
        load_scenario(path, overrides=["topics.orders.partitions=2"])


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nload: {rate: -1, payload: 1}\nrounds: 0\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    places = [line.partition(": ")[2] for line in (str(caught.value), *caught.value.further)]
    assert [text.partition(":")[0] for text in places] == ["load.rate", "load.payload", "rounds"]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("kafka-quik", "no such scenario: 'kafka-quik'", "did you mean kafka-quick?"),
        (
            "nowhere/kafka-storm.yaml",
            "no such file: 'nowhere/kafka-storm.yaml'",
            "did you mean kafka-storm?",
        ),
        (
            "zzzz",
            "no such scenario: 'zzzz'",
            "scenarios: app-connect, app-flink, app-kafka-streams",
        ),
    ],
)
def test_no_such_scenario(name: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(name)
    assert str(caught.value) == message
    assert hint in caught.value.hint


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\xfe\x00")
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * 1_000_001)
    (tmp_path / "control.yaml").write_bytes(b"name: \x07")
    for name, message in [
        ("binary.yaml", "not UTF-8 text (byte 6)"),
        ("huge.yaml", "larger than 1,000,000 bytes"),
        ("control.yaml", "not valid YAML: unacceptable character"),
    ]:
        with pytest.raises(ScenarioError) as caught:
            load_scenario(tmp_path / name)
        assert message in str(caught.value)
    with pytest.raises(ScenarioError, match="is a folder, not a scenario file"):
        load_scenario(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "name: x\nload: &a {producers: *a}\n",
        "name: x\nload: " + "[" * 5000,
        "name: x\nload: " + "[" * 5000 + "]" * 5000,
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
    ],
    ids=["recursive", "unclosed", "deep", "many laughs"],
)
def test_hostile_yaml_is_an_error_not_a_hang(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError):
        load_scenario(path)
