"""Delta Lake for Spark: where its jars come from, and the settings of a session that has it.

A session has Delta if its jars are given (``--jar``, ``--packages`` or their Spark properties), or if they are in
Spark's own directory of jars. A session that needs Delta and has no jars gets those in the local caches of Ivy and
Maven. If they are not there, Spark fetches them as packages, with Ivy.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

#: The version of Spark that Delta exists for, as far as it is part of the name of the jar.
SPARK = "4.2"
VERSION = "4.4.0"
PACKAGES = f"io.delta:delta-spark_{SPARK}_2.13:{VERSION},io.delta:delta-storage:{VERSION}"
#: What the packages ask for and Spark has, or nothing here uses.
EXCLUDED = (
    "org.scala-lang:scala-library,org.slf4j:slf4j-api,io.delta:delta-kernel-api,io.delta:delta-kernel-defaults,"
    "io.delta:delta-kernel-unitycatalog"
)
#: Part of the name of the jar, of its package and of its file.
JAR = "delta-spark"

JARS, JAR_PACKAGES, JAR_EXCLUDES = "spark.jars", "spark.jars.packages", "spark.jars.excludes"
EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
#: Delta replays the log of a table in this many tasks. Its default of 50 is for tables with millions of files, and
#: costs a second for each commit on two cores.
_SNAPSHOT_PARTITIONS = ("spark.databricks.delta.snapshotPartitions", "1")


class DeltaMissing(Exception):
    """A session cannot have Delta. The message says what is missing and what to do."""


def delta_settings(conf: Mapping[str, str], *, needed: bool) -> dict[str, str]:
    """The settings that a session with this configuration needs for Delta; empty if its jars are not given. With
    ``needed``, they are taken from the caches of this machine, or fetched as packages.

    Raises DeltaMissing if Delta is needed and does not exist for this version of Spark.
    """
    settings: dict[str, str] = {}
    if not _has_jars(conf):
        if not needed:
            return {}
        found = _cached_jars()
        given = [each for each in (conf.get(JARS, ""),) if each]
        settings = _packages(conf) if found is None else {JARS: ",".join([*given, *found])}
    extensions = [each for each in conf.get(EXTENSIONS, "").split(",") if each]
    name, value = _SNAPSHOT_PARTITIONS
    return {
        **settings,
        EXTENSIONS: ",".join(dict.fromkeys([*extensions, _EXTENSION])),
        CATALOG: conf.get(CATALOG, _CATALOG),
        name: conf.get(name, value),
    }


def _packages(conf: Mapping[str, str]) -> dict[str, str]:
    _check_version()
    packages = [each for each in (conf.get(JAR_PACKAGES, ""), PACKAGES) if each]
    excluded = [each for each in (conf.get(JAR_EXCLUDES, ""), EXCLUDED) if each]
    return {JAR_PACKAGES: ",".join(packages), JAR_EXCLUDES: ",".join(excluded)}


def _check_version() -> None:
    if not _is_right_spark():
        raise DeltaMissing(
            f"declared tables need Delta Lake, which is there for Spark {SPARK}, but PySpark {version('pyspark')} is "
            f"installed: pip install 'pyspark[connect,pipelines]=={SPARK}.*', or give the jars of another version of "
            "Delta with --jar or --packages"
        )


def _has_jars(conf: Mapping[str, str]) -> bool:
    return any(JAR in conf.get(name, "") for name in (JARS, JAR_PACKAGES)) or _is_installed()


def find_jars() -> list[str]:
    """The jars of Delta on this machine, for a session without other jars; none if Spark has them in its own directory.
    It does not use the network.

    Raises DeltaMissing if this machine has no jars for this version of Spark.
    """
    if _is_installed():
        return []
    _check_version()
    found = _cached_jars()
    if found is None:
        raise DeltaMissing(
            f"declared tables need the jars of {PACKAGES}, which are not on this machine; give them with --jar, or let "
            "`strandline pipeline run --project DIR` fetch them from Maven"
        )
    return found


def _cached_jars() -> list[str] | None:
    """The jars in the local caches of Ivy and Maven; None if one is not there, or this Spark needs others."""
    if not _is_right_spark():
        return None
    home, jars = Path.home(), []
    for package in PACKAGES.split(","):
        group, name, number = package.split(":")
        file = f"{name}-{number}.jar"
        places = [home / ".m2" / "repository" / group.replace(".", "/") / name / number / file]
        places += sorted(home.glob(f".ivy2*/jars/{group}_{file}"))
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            return None
        jars.append(str(found))
    return jars


def _is_right_spark() -> bool:
    return version("pyspark").startswith(f"{SPARK}.")


def _is_installed() -> bool:
    """Whether the jars are in the directory of jars that every session of this PySpark has."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return False
    return any((Path(spec.origin).parent / "jars").glob(f"{JAR}*.jar"))
