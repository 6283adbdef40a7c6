#!/usr/bin/env bash
set -eu
config=/opt/kafka/config
if [[ -z ${KAFKA_LOG4J_OPTS:-} ]]; then
  # log4j 2 from Kafka 4.0 on
  if compgen -G '/opt/kafka/libs/log4j-core-*.jar' >/dev/null; then
    export KAFKA_LOG4J_OPTS=-Dlog4j2.configurationFile=$config/log4j2.yaml
  else
    export KAFKA_LOG4J_OPTS=-Dlog4j.configuration=file:$config/log4j.properties
  fi
fi
export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G}
exec "$(dirname "$0")/kafka-run-class.sh" kafka.Kafka "$@"
