"""A real Kafka broker: one KRaft node in a process of its own, from the published jars."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

from support.maven_jars import resolve
from support.prerequisites import need

#: With what writes its log to standard error.
BROKER = ["org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-simple:1.7.36"]
#: Generous: the machine may be busy.
START_SECONDS = 120.0
POLL_SECONDS = 0.05
#: Free ports are chosen before the broker takes them, so another process may be quicker.
TRIES = 3
STARTED = "Kafka Server started"

#: Messages stay: those of tests have old times.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={logs}
auto.create.topics.enable=false
log.retention.ms=-1
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
#: What ``kafka-storage format`` writes; a further start of Java would take as long as that of the broker.
_FORMAT = "version=1\nnode.id=1\ncluster.id=c3RyYW5kbGluZS10ZXN0cw\ndirectory.id=c3RyYW5kbGluZS1kaXIxMQ\n"


class _NotStarted(Exception):
    pass


@contextmanager
def kafka_broker(directory: Path) -> Iterator[str]:
    """Run a broker and yield its bootstrap server. It is killed at the end."""
    need(["java"])
    jars = resolve(BROKER)
    with ExitStack() as stack:
        for number in range(TRIES):
            try:
                yield stack.enter_context(_running(jars, directory / f"broker-{number}"))
                return
            except _NotStarted as error:
                failure = error
        raise AssertionError(f"the broker did not start:\n{failure}")


@contextmanager
def _running(jars: list[Path], directory: Path) -> Iterator[str]:
    broker, controller = _free_ports()
    logs = directory / "logs"
    logs.mkdir(parents=True)
    (logs / "meta.properties").write_text(_FORMAT)
    settings = directory / "server.properties"
    settings.write_text(_SETTINGS.format(broker=broker, controller=controller, logs=logs))
    command = [
        "java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka", str(settings),
    ]  # fmt: skip
    output = directory / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        _wait(process, output)
        yield f"127.0.0.1:{broker}"
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = monotonic() + START_SECONDS
    while STARTED not in (said := output.read_text(errors="replace")):
        if process.poll() is not None:
            raise _NotStarted(said[-3000:])
        if monotonic() > deadline:
            raise _NotStarted(f"not ready within {START_SECONDS:.0f} seconds:\n{said[-3000:]}")
        sleep(POLL_SECONDS)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
