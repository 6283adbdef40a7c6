# brokerstorm with a Python, a Java and nothing else: brokers and clients run in the one container.
#
#   docker build -t brokerstorm .
#   docker run --rm -v "$PWD/runs:/runs" -v brokerstorm-cache:/cache brokerstorm run kafka-quick
#
# `--target with-go` adds a Go for the clients that are built from it (docs/howto/install.md).
ARG BASE=debian:trixie-slim
ARG JAVA=openjdk-21-jre-headless

FROM ${BASE} AS system
ARG JAVA
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    ca-certificates ${JAVA} python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man \
 && useradd --create-home --uid 1000 brokerstorm \
 && chmod g=u /etc/passwd \
 && install -d -o brokerstorm -g brokerstorm -m 0777 /runs /cache

FROM system AS build
COPY requirements.lock /source/
RUN python3 -m venv /opt/brokerstorm \
 && /opt/brokerstorm/bin/pip install -q --no-cache-dir --require-hashes -r /source/requirements.lock
COPY . /source
RUN cd /source && /opt/brokerstorm/bin/python -m hatchling build -t wheel -d /wheels \
 && /opt/brokerstorm/bin/pip install -q --no-deps /wheels/*.whl
# The development tools go, and what of Spark judging on this machine does not use.
RUN python3 /source/container/development.py /source/pyproject.toml | xargs /opt/brokerstorm/bin/pip uninstall -q -y \
 && cd /opt/brokerstorm/lib/python3*/site-packages \
 && rm -rf pandas/tests numpy/*/tests pyarrow/tests pyarrow/include pyspark/jars/connect-repl \
 && cd pyspark/jars \
 && rm -f rocksdbjni-* breeze* spire* cats-kernel* algebra* spark-mllib* spark-graphx* spark-connect_* \
    hive-* spark-hive* derby* datanucleus* kubernetes-* spark-kubernetes* vertx-* spark-yarn* lapack* arpack* blas* \
    JTransforms* scala-compiler* netty-tcnative-*-osx-* netty-tcnative-*-windows-*

FROM system AS runtime
COPY --from=build /opt/brokerstorm /opt/brokerstorm
COPY container/entrypoint /usr/local/bin/brokerstorm-as-caller
ENV LANG=C.UTF-8 BROKERSTORM_RUN_DIR=/runs BROKERSTORM_CACHE=/cache PATH=/opt/brokerstorm/bin:$PATH
VOLUME ["/runs", "/cache"]
WORKDIR /work
ENTRYPOINT ["tini", "--", "brokerstorm-as-caller"]
CMD ["--help"]

FROM runtime AS with-go
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends git golang-go make \
 && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man

FROM runtime
