#!/usr/bin/env bash
# java with the variables that Kafka's own scripts honour.
set -eu
# shellcheck disable=SC2086  # these variables hold several options each
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseG1GC -XX:+ExitOnOutOfMemoryError} \
  ${KAFKA_JMX_OPTS:-} ${KAFKA_LOG4J_OPTS:-} -Dkafka.logs.dir="${LOG_DIR:-/opt/kafka/logs}" ${KAFKA_OPTS:-} \
  -cp '/opt/kafka/libs/*' "$@"
