"""The load generators and the peer: wrk for HTTP, Redis with its own benchmark. Any of them may be missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bench.measure import Sample
from bench.topics_server import Server

#: The seconds that a load generator may run beyond its duration.
GRACE_SECONDS = 60.0
START_SECONDS = 10.0

#: The body and the paths are read from files, so that nothing has to be quoted. The summary is printed as JSON.
SCRIPT = """
local paths = {}
local at = 0
function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  wrk.headers["Content-Type"] = "application/json"
  file:close()
  for path in io.lines(args[2]) do
    paths[#paths + 1] = wrk.format(nil, path)
  end
  at = math.random(#paths)
end
function request()
  at = at % #paths + 1
  return paths[at]
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{"requests":%d,"seconds":%f,"p50_ms":%f,"errors":%d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Load(msgspec.Struct, frozen=True):
    """The result of a load generator."""

    requests: float
    seconds: float
    p50_ms: float
    errors: int = 0
    #: The processor time that the server used.
    processor: float = 0.0

    def sample(self, records: int = 1) -> Sample:
        return Sample(self.requests * records, self.seconds)

    def p50(self) -> Sample:
        return Sample(1, self.p50_ms / 1000)


def processor_seconds(pid: int) -> float:
    """The processor time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def missing(*programs: str) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


# --- HTTP ----------------------------------------------------------------------------------------------------------


class Wrk(NamedTuple):
    """POSTs one body repeatedly, to each path in turn."""

    directory: Path
    server: Server

    def run(self, body: bytes, paths: Sequence[str], connections: int, seconds: float) -> Load:
        """``seconds`` is at least 1: wrk accepts only whole seconds."""
        files = {"script.lua": SCRIPT.encode(), "body": body, "paths": "\n".join(paths).encode()}
        for name, content in files.items():
            (self.directory / name).write_bytes(content)
        whole = max(1, round(seconds))
        script, body_file, path_file = (str(self.directory / name) for name in files)
        command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{whole}s", "-s", script, self.server.url]
        before = processor_seconds(self.server.pid)
        done = subprocess.run(
            [*command, "--", body_file, path_file],
            stdout=subprocess.PIPE,
            check=True,
            timeout=whole + GRACE_SECONDS,
        )
        load = msgspec.json.decode(done.stdout.splitlines()[-1], type=Load)
        if load.errors or not load.requests:
            raise RuntimeError(f"wrk saw {load.errors} errors in {load.requests} requests to {paths[0]}")
        return msgspec.structs.replace(load, processor=processor_seconds(self.server.pid) - before)


# --- Redis ---------------------------------------------------------------------------------------------------------


class Redis(NamedTuple):
    port: int
    pid: int

    def run(self, command: Sequence[str], connections: int, requests: int, pipeline: int = 1) -> Load:
        """Run the same command a number of times with redis-benchmark."""
        arguments = ["redis-benchmark", "-p", str(self.port), "-c", str(connections), "-n", str(requests)]
        before = processor_seconds(self.pid)
        done = subprocess.run(
            [*arguments, "-P", str(pipeline), "--csv", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            timeout=GRACE_SECONDS,
        )
        # The first column is the command, with its quotes unescaped. The others are numbers: rps, then average,
        # minimum, p50, p95, p99 and maximum of the latency.
        rate, _, _, p50, *_ = [float(word.strip('"')) for word in done.stdout.splitlines()[-1].rsplit(",", 7)[1:]]
        return Load(requests, requests / rate, p50, processor=processor_seconds(self.pid) - before)

    def run_for(
        self, command: Sequence[str], connections: int, seconds: float, pipeline: int = 1, first: int = 2000
    ) -> Load:
        """Run the command for about this time. redis-benchmark takes a number of requests, not a duration."""
        trial = self.run(command, connections, first, pipeline)
        wanted = int(trial.requests / trial.seconds * seconds)
        return self.run(command, connections, max(first, wanted), pipeline)

    def call(self, *words: bytes) -> None:
        """A command whose answer is one line."""
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        with socket.create_connection(("127.0.0.1", self.port), START_SECONDS) as connection:
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
            answer = connection.recv(4096)
        if answer.startswith(b"-"):
            raise RuntimeError(f"redis: {answer!r}")


@contextmanager
def redis_serving(directory: Path, appendfsync: Literal["everysec", "always"]) -> Iterator[Redis]:
    """Redis with an append-only file and without snapshots; all other settings are defaults."""
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", appendfsync, "--daemonize", "no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    redis = Redis(port, process.pid)
    try:
        _wait_for(redis, process)
        yield redis
    finally:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(redis: Redis, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            redis.call(b"PING")
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError(f"redis-server was not ready within {START_SECONDS} s, or ended: {process.poll()}")
