"""Our own code, while a broker dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from brokerstorm import Cluster
from kafka.admin import KafkaAdminClient, NewTopic
from shop.orders import send_until, stored


def test_no_order_is_lost_or_doubled_when_the_leader_dies(brokerstorm_cluster: Cluster) -> None:
    bootstrap, stop = brokerstorm_cluster.bootstrap, Event()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    admin.create_topics([NewTopic("orders", 1, 3, topic_configs={"min.insync.replicas": "2"})])
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_until, stop, bootstrap, "orders")
        try:
            fault = brokerstorm_cluster.inject("kill", target="leader-of:orders", for_s=2)
        finally:
            stop.set()
        acknowledged = sending.result()
    admin.close()
    assert fault.effective, fault.evidence
    assert acknowledged, "nothing was sent while the broker was down"
    found = stored(bootstrap, "orders")
    assert sorted(set(acknowledged) - set(found)) == []
    assert sorted(found) == sorted(set(found))
