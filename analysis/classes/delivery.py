"""Classes of deliveries to a consumer group or subscription."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, AnomalyClass, SubKind
from analysis.findings import Status

DELIVERY: Final = (
    AnomalyClass(
        name="commit-not-sent",
        rank=128,
        breaks=(ALWAYS,),
        needs=("offsets-read",),
        asks=("consumers", "watched-commits"),
        sentence="the client confirmed a commit that it never sent to the brokers",
        example="commit of 120 in orders-0: confirmed, no request sent; in the end the group is at 96",
        explanation=(
            "A confirmed commit tells the application that the group does not read these messages "
            "again. The worker watches the requests of its client: here the call returned without "
            "an error, and the client had sent nothing. The messages come again, which breaks no "
            "promise of delivery; the false confirmation is the finding. In the end the brokers "
            "are asked for the position of the group. If it reaches the confirmed one, another "
            "commit covered it, which is information only; if the position could not be read, the "
            "finding is suspect."
        ),
        unit="commits",
        splits={
            "not covered": SubKind("in the end the group's position is below the confirmed one"),
            "position unknown": SubKind("the group's position in the end was not read"),
            "covered later": SubKind("another commit of the group reached it", Status.INFO),
        },
    ),
    AnomalyClass(
        name="rewind-past-commit",
        rank=130,
        breaks=(ALWAYS,),
        needs=("answers-kept",),
        excused_by=("reposition",),
        asks=("consumers", "settlements"),
        rests_on=("assignments",),
        sentence="delivered again although the group had committed past it before the assignment",
        example="delivered 1 2 3, committed 4, assigned again, delivered [2] [3] 4",
        explanation=(
            "After a rebalance, a consumer starts at the last confirmed commit of its group. Here "
            "it started below that commit, so it received messages again that the group had "
            "acknowledged. An episode is one assignment; its messages are counted."
        ),
    ),
    AnomalyClass(
        name="redelivered-after-ack",
        rank=134,
        breaks=(ALWAYS,),
        needs=("acks-kept",),
        asks=("consumers", "settlements"),
        rests_on=("ack", "batch_index_acks"),
        sentence="delivered again after its acknowledgement had been confirmed",
        example="delivered 1 2 3, 2 acknowledged and confirmed, delivered [2]",
        explanation=(
            "The broker confirmed the acknowledgement and then gave the message to the "
            "subscription again. This needs the confirmation of the broker: a client that "
            "completes the future without a receipt proves nothing (see delivery-duplicate). For a "
            "batch it needs the confirmation of every message, because without batch index "
            "acknowledgements on both ends a batch is acknowledged as a unit. Nothing may have "
            "caused a second delivery before that: no fault (nor one that ended less than 2 s "
            "before the first delivery, while clients reconnected), no timeout, no refusal. Each "
            "fault states in faults.jsonl whether it may have cost a broker acknowledgements "
            "(confirmed_acks)."
        ),
        splits={
            "confirmed": SubKind("the broker had confirmed the acknowledgement"),
            "after a crash": SubKind(
                "a broker that dies or is replaced forgets acknowledgements that it had not yet written",
                Status.PERMITTED,
            ),
        },
    ),
    AnomalyClass(
        name="premature-redelivery",
        rank=138,
        breaks=(ALWAYS,),
        needs=("delivery-capture",),
        asks=("consumers", "settlements"),
        rests_on=("ack_timeout", "settlements"),
        sentence="delivered again although the application acknowledged it in time",
        example="ack timeout 1 s: given 7 at 5.00 s, acknowledged at 5.05 s, given [7] at 6.2 s",
        explanation=(
            "The acknowledgement timeout starts when the application is given the message. On NATS "
            "it starts when the server sends it, and it may have waited in the client: there, the "
            "time since the producer sent the message must be within the timeout. Every "
            "message of the batch was acknowledged within it, or the timeout had not even passed. "
            "No message was negatively acknowledged, the consumer stayed connected, and no fault "
            "was active in between. So the client asked for a redelivery without a reason. This is "
            "judged for shared subscriptions; with one consumer, the timeout of any message "
            "rewinds all messages that are not acknowledged."
        ),
        splits={
            "acknowledged in time": SubKind("acknowledged within the timeout, and given again"),
            "before the timeout": SubKind("given again while the application still had time"),
        },
    ),
    AnomalyClass(
        name="not-dispatched",
        rank=140,
        breaks=(ALWAYS,),
        needs=("drained", "delivery-capture", "start-known", "settings-known", "answers-kept"),
        excused_by=("reposition",),
        asks=("consumers",),
        rests_on=("drops",),
        sentence="in the log, but never delivered to the group",
        example="stored 3 4 5, delivered 3 _ 5",
        explanation=(
            "The group subscribed to the topic and was drained, and no member received the "
            "message. The log contains it, so it was lost between broker and application, not in "
            "the broker's log. Some settings allow the broker to drop messages that were not "
            "delivered yet (Pulsar: a quota that evicts, a time to live; Kafka: retention.ms). If "
            "the message could have reached the limit before the group had passed it, the finding "
            "is permitted. If it could not, the setting excuses nothing. If the limit is not "
            "known, the finding is suspect. A group that begins at the latest message is promised "
            "nothing before the first position that it was given; what it skipped when a partition "
            "without a committed position was assigned again is suspect."
        ),
        splits={
            "before the start": SubKind(
                "the group began at the latest message, and this one lies before", Status.PERMITTED
            ),
            "not given": SubKind("no setting lets the broker drop it"),
            "dropped": SubKind(
                "it could have reached a limit at which the broker drops", Status.PERMITTED
            ),
        },
    ),
    AnomalyClass(
        name="refused-not-redelivered",
        rank=142,
        breaks=(ALWAYS,),
        needs=("delivery-capture", "readiness-restored", "settings-known", "attempts-known"),
        asks=("consumers", "log", "refusals"),
        sentence="refused by its consumer, never settled, and never delivered to the group again",
        example="delivered 1 2 3, 2 refused, 1 and 3 acknowledged; the backlog is empty, 2 never came again",
        explanation=(
            "A consumer refused the message (a negative acknowledgement, or a release), and no "
            "member of the group acknowledged it. The broker must then deliver it to the group "
            "again. Here it did not: either the brokers report that the group has no backlog, or "
            "the message was due for longer than limits.stall after the redelivery delay, while a "
            "member ran and no fault was active. Messages that a dead letter policy or a delivery "
            "limit took, or that could have reached a limit at which the broker drops messages, "
            "are permitted and counted separately. Messages refused to a queue are judged as "
            "lost-after-rollback and backlog-stuck."
        ),
        splits={
            "gone from the backlog": SubKind("the brokers count it as settled"),
            "not given again": SubKind("the group had a backlog to the end, and was not given it"),
            "dropped": SubKind(
                "it could have reached a limit at which the broker drops", Status.PERMITTED
            ),
            "delivery limit": SubKind(
                "given as often as its settings allow (dead letter policy, most deliveries)",
                Status.PERMITTED,
            ),
        },
    ),
    AnomalyClass(
        name="per-key-reorder",
        rank=145,
        breaks=(ALWAYS,),
        needs=("delivery-capture", "answers-kept"),
        excused_by=("reposition",),
        asks=("consumers",),
        rests_on=("order", "settlements"),
        sentence="the messages of one key were not delivered in their order",
        example="key k: A is given 1 and still works on it, B is given [2]",
        explanation=(
            "A Key_Shared subscription gives all messages of a key to one consumer at a time, in "
            "the order of the log. The first delivery of each message is judged: a later message "
            "must not come before it, and no other consumer may receive a later message while the "
            "earlier one is unsettled. A message is settled when its consumer acknowledged it or "
            "gave it back, when it is delivered again, or when its consumer has gone."
        ),
        splits={
            "held elsewhere": SubKind(
                "given while another consumer held an earlier message of the key"
            ),
            "overtaken": SubKind("first given after a later message of the key"),
        },
    ),
    AnomalyClass(
        name="delivery-reorder",
        rank=150,
        breaks=(ALWAYS,),
        needs=("answers-kept",),
        excused_by=("reposition",),
        asks=("consumers",),
        rests_on=("order", "assignments"),
        sentence="delivered after a later position of the same partition",
        example="log 1 2 3, delivered 1 3 [2]",
        explanation=(
            "Within one assignment of a partition to a session, and without a seek, positions only "
            "grow. This message came after a higher position, for the first time in this "
            "assignment. Pulsar promises the order for Exclusive and Failover subscriptions. "
            "Shared subscriptions promise no order, and Key_Shared subscriptions promise the order "
            "of each key (per-key-reorder)."
        ),
    ),
    AnomalyClass(
        name="delivery-duplicate",
        rank=170,
        breaks=(ALWAYS,),
        needs=("answers-kept",),
        excused_by=("reposition",),
        asks=("consumers",),
        rests_on=("ack", "assignments"),
        sentence="delivered to the group more than once",
        example="delivered 1 2 3, rebalance before the commit, delivered [2] [3] 4",
        explanation=(
            "At-least-once delivery repeats messages that were not committed when a partition "
            "changed hands: that split is permitted. Within one assignment, no message may come "
            "twice without a seek. Repeats of committed messages are rewind-past-commit. If "
            "messages are settled one by one (Pulsar, queues), a repeat is permitted as long as no "
            "acknowledgement of the message was confirmed, or a fault came before the "
            "confirmation. The report also shows the redelivery count of the client."
        ),
        splits={
            "same assignment": SubKind("twice within one assignment, without a seek"),
            "after rebalance": SubKind(
                "not committed when the partition changed hands", Status.PERMITTED
            ),
            "after seek": SubKind("the application asked for it", Status.PERMITTED),
            "not acknowledged": SubKind(
                "no acknowledgement of it had been confirmed when it was sent again",
                Status.PERMITTED,
            ),
            "confirmed after a fault": SubKind(
                "its acknowledgement was confirmed, but a fault or the end of its consumer may "
                "have made the broker send it again before that",
                Status.PERMITTED,
            ),
            "no receipt": SubKind(
                "acknowledged, but this client does not wait for the broker's receipt",
                Status.PERMITTED,
            ),
            "after ack timeout": SubKind(
                "it was not acknowledged within the timeout", Status.PERMITTED
            ),
            "after nack": SubKind("the application gave it back", Status.PERMITTED),
            "after rollback": SubKind(
                "its transaction or session was rolled back", Status.PERMITTED
            ),
        },
    ),
)
