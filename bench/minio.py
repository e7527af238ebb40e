"""MinIO, an S3 server. It is built from its Go module once, and kept in a cache outside of the tree.

``python -m bench.minio`` builds it, so that neither tests nor benchmarks have to wait for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import httpx

from bench.peers import free_port

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
#: The module needs this version of Go or a newer one.
GO = (1, 24)
#: A build takes two minutes on two cores. A test may take ten minutes.
BUILD_SECONDS = 500.0
#: The same if no test waits for it.
ALONE_BUILD_SECONDS = 1800.0
START_SECONDS = 60.0
BUCKET = "strandline"
_USER, _PASSWORD = "strandline", "change-this"


class MinioServer(NamedTuple):
    """A server with an empty bucket. ``pid`` is its process."""

    url: str
    pid: int

    @property
    def options(self) -> dict[str, str | bool]:
        """What a program that uses the store in Python passes."""
        return {
            "endpoint": self.url,
            "region": "us-east-1",
            "access_key_id": _USER,
            "secret_access_key": _PASSWORD,
            "allow_http": True,
        }

    @property
    def environment(self) -> dict[str, str]:
        """What a process that uses the store has in its environment."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _USER,
            "AWS_SECRET_ACCESS_KEY": _PASSWORD,
            "AWS_ALLOW_HTTP": "true",
        }


class CannotBuild(Exception):
    """MinIO is not in the cache and cannot be built. The text says what is missing."""


@contextmanager
def minio_server(directory: Path, program: Path) -> Iterator[MinioServer]:
    """Run the program on an empty directory."""
    # A folder is a bucket.
    (directory / BUCKET).mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    environment = {"MINIO_ROOT_USER": _USER, "MINIO_ROOT_PASSWORD": _PASSWORD, "MINIO_BROWSER": "off"}
    command = [str(program), "server", str(directory), "--address", address, "--quiet"]
    with (directory.parent / f"{directory.name}.log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
    try:
        url = f"http://{address}"
        until = monotonic() + START_SECONDS
        while not _is_ready(url):
            if process.poll() is not None or monotonic() > until:
                raise AssertionError(f"MinIO did not start:\n{Path(log.name).read_text()}")
            sleep(0.02)
        yield MinioServer(url, process.pid)
    finally:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/minio/health/ready", trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


def build_minio(seconds: float = BUILD_SECONDS) -> Path:
    """Return the program, and build it before if need be, in this time. Raises CannotBuild."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline-minio"
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / VERSION
    if not program.exists():
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                _build(program, seconds)
    return program


def _build(program: Path, seconds: float) -> None:
    """The program gets its name when it is complete."""
    _check_go()
    with tempfile.TemporaryDirectory(prefix="build-", dir=program.parent) as name:
        command = ["go", "install", "-ldflags", "-s -w", f"{MODULE}@{VERSION}"]
        # The work is done once, so its intermediate files, about a gigabyte, are not kept.
        environment = os.environ | {"GOBIN": name, "GOCACHE": f"{name}/cache", "GOFLAGS": "-buildvcs=false"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise CannotBuild(f"Go did not build MinIO in {seconds:.0f} seconds") from None
        if done.returncode:
            raise CannotBuild(f"Go cannot build MinIO:\n{done.stderr[-2000:]}")
        (Path(name) / "minio").rename(program)


def _check_go() -> None:
    needed = ".".join(map(str, GO))
    if shutil.which("go") is None:
        raise CannotBuild(f"MinIO is built with Go {needed} or newer, which is not installed")
    found = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    if tuple(int(part) for part in found.removeprefix("go").split(".")[:2]) < GO:
        raise CannotBuild(f"MinIO is built with Go {needed} or newer; installed is {found}")


if __name__ == "__main__":
    try:
        print(build_minio(ALONE_BUILD_SECONDS))
    except CannotBuild as error:
        sys.exit(str(error))
