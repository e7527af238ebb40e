"""Published jars and their dependencies, resolved by Maven once for all test processes.

Maven uses its own configuration (``settings.xml``, mirrors) and its own local repository. The resolved jars are kept in
a cache outside of the tree, in one directory for each set of coordinates.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

from support.prerequisites import need, unavailable

#: The first resolution downloads up to 100 MB.
RESOLVE_SECONDS = 600.0
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
#: ``name-1.2.3.jar``, with any suffix after the version.
_FILE_NAME = re.compile(r"(?P<name>.+?)-\d[^/]*\.jar")
#: Repositories that the poms of dependencies ask first, by id. If one cannot be reached, Maven gives up instead of
#: asking the next one. A disabled repository of the same id in the own pom takes its place.
_NOT_ASKED = ("gcs-maven-central-mirror",)


def resolve(coordinates: list[str], *, without_spark: bool = False) -> list[Path]:
    """The jars of ``group:artifact:version`` coordinates and of their dependencies, sorted by name.

    ``without_spark`` leaves out the artifacts that PySpark ships, whatever their version: these are on the class path
    of Spark already. If Maven is missing or cannot resolve them, the test is skipped, or fails in CI.
    """
    found = sorted(_directory(sorted(coordinates)).glob("*.jar"))
    if not without_spark:
        return found
    shipped = _shipped_by_spark()
    return [jar for jar in found if _artifact(jar) not in shipped]


def _directory(coordinates: list[str]) -> Path:
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:16]
    cache = _cache()
    directory = cache / digest
    if directory.is_dir():
        return directory
    need(["mvn", "java"])
    with (cache / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            _download(coordinates, directory)
    return directory


def _download(coordinates: list[str], directory: Path) -> None:
    """Fill a new directory. It gets its name when it is complete, so that a killed process leaves nothing half-done."""
    partial = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}")
    partial.mkdir()
    try:
        pom = partial / "pom.xml"
        pom.write_text(_pom(coordinates))
        command = [
            "mvn", "-B", "-q", "-f", str(pom), f"{PLUGIN}:copy-dependencies",
            f"-DoutputDirectory={partial}", "-DincludeScope=runtime",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RESOLVE_SECONDS
            )
        except subprocess.TimeoutExpired:
            unavailable(f"Maven did not resolve {', '.join(coordinates)} in {RESOLVE_SECONDS:.0f} seconds")
        if done.returncode:
            unavailable(f"Maven cannot resolve {', '.join(coordinates)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pom(coordinates: list[str]) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *one.split(":")
        )
        for one in coordinates
    )
    repositories = "".join(
        f"<repository><id>{name}</id><url>file:///</url><releases><enabled>false</enabled></releases>"
        "<snapshots><enabled>false</enabled></snapshots></repository>"
        for name in _NOT_ASKED
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>strandline.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<repositories>{repositories}</repositories><dependencies>{dependencies}</dependencies></project>"
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(base) / "strandline-tests" / "maven-jars"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _shipped_by_spark() -> set[str]:
    import pyspark

    return {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}


def _artifact(jar: Path) -> str:
    found = _FILE_NAME.fullmatch(jar.name)
    return found["name"] if found else jar.stem
