"""Starts Spark sessions, and reports missing requirements without importing Spark."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.extras import install
from strandline.lake.reporter import describe
from strandline.pipeline.delta import JAR_PACKAGES, DeltaMissing, delta_settings
from strandline.pipeline.java import JavaMissing, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = install("spark")

#: The required packages and their oldest versions.
PACKAGES = {"pyspark": (4, 2), "pandas": (2, 2)}
#: Additional packages for Spark Connect.
CONNECT_PACKAGES = {"grpcio": (1, 48), "googleapis-common-protos": (1, 56)}


class SparkUnavailable(Exception):
    """Spark cannot be used here. The message says what is missing and how to fix it."""


def what_is_missing(master: str = "local[*]") -> list[str]:
    """A sentence for each missing requirement of this master; empty if Spark can start."""
    connect = master.startswith("sc://")
    wanted = {**PACKAGES, **CONNECT_PACKAGES} if connect else PACKAGES
    missing = [sentence for name, oldest in wanted.items() if (sentence := _fault(name, oldest))]
    if not connect:
        try:
            find_java()
        except JavaMissing as error:
            missing.append(str(error))
    return missing


def _fault(package: str, oldest: tuple[int, ...]) -> str:
    try:
        found = version(package)
    except PackageNotFoundError:
        return f"The Python package {package} is not installed: {INSTALL}"
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < oldest:
        return f"{package} {found} is too old, need at least {'.'.join(map(str, oldest))}: {INSTALL}"
    return ""


# --- Sessions: on this machine, on a cluster, or through Spark Connect ----------------------------------------------

#: Python and Arrow do the work, and Java only schedules. So Java is configured to start fast and stay small.
LIGHT_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

#: Settings of every session, including Spark Connect.
SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Without this, reading from a source that can filter itself fails.
    "spark.sql.python.filterPushdown.enabled": "true",
}
#: Settings that must be known before Java starts.
DRIVER_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # A crashing worker prints where.
    "spark.python.worker.faulthandler.enabled": "true",
}

#: Attempts per task, the default of clusters.
ATTEMPTS = 4

_ROOT = Path(__file__).parents[2]
_QUIET = Path(__file__).with_name("log4j2.properties")


def open_session(
    master: str = "local[*]",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "strandline",
    *,
    light: bool = True,
    delta: bool = False,
) -> SparkSession:
    """Open a session. Raises SparkUnavailable if a requirement is missing or Spark does not start.

    ``remote`` (``sc://host:port``) uses Spark Connect instead of ``master``. ``conf`` is Spark's configuration and
    overrides the settings chosen here. ``light`` is for work that is done in Python; set it to false if Java itself
    reads and sorts much data. A session has Delta if its jars are there; ``delta`` says that it must have it.
    """
    remote = master if remote is None and master.startswith("sc://") else remote
    missing = what_is_missing(remote or master)
    if missing:
        raise SparkUnavailable("\n".join(missing))
    settings = {**SESSION_SETTINGS, **(conf or {})}
    if remote is None:
        try:
            settings |= delta_settings(settings, needed=delta)
        except DeltaMissing as error:
            raise SparkUnavailable(str(error)) from None
        settings = {**driver_settings(master, light, conf or {}), **settings}
        _prepare_environment(master)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _start(master, remote, settings, app_name)


def driver_settings(master: str, light: bool, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a driver on this machine. Java options are combined with those of ``conf``."""
    settings = dict(DRIVER_SETTINGS)
    options = [f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"]
    if light:
        options.append(LIGHT_JAVA)
    name = "spark.driver.extraJavaOptions"
    settings[name] = " ".join([*options, *([conf[name]] if name in conf else [])])
    if is_local(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        # Useful if the workers share the disk; harmless if the package is installed on them.
        settings["spark.executorEnv.PYTHONPATH"] = _python_path()
    return settings


def with_attempts(master: str) -> str:
    """Adds the number of attempts to a local master. By default Spark does not retry tasks on one machine, so a dying
    worker would end a round that a cluster continues."""
    found = re.fullmatch(r"local\[([\d*]+)\]", master)
    return f"local[{found[1]},{ATTEMPTS}]" if found else master


def is_local(master: str) -> bool:
    return master.startswith("local")


def _prepare_environment(master: str) -> None:
    try:
        # This may differ from the current JAVA_HOME, or be a wrapper.
        os.environ["JAVA_HOME"] = str(find_java().home)
    except JavaMissing as error:
        raise SparkUnavailable(str(error)) from None
    # Otherwise workers run any python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = _python_path()
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _python_path() -> str:
    """Makes workers import this package, installed or not."""
    paths = [str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(path for path in paths if path))


def _start(master: str, remote: str | None, settings: Mapping[str, str], app_name: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    builder = builder.master(with_attempts(master)) if remote is None else builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        if remote is not None:
            # A remote session contacts the server only with its first job: run one now to check the connection.
            session.range(1).count()
    except Exception as error:
        place = remote or master
        if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
            hint = "; if it could not fetch packages, give their jars with --jar" if JAR_PACKAGES in settings else ""
            raise SparkUnavailable(f"Java exited before Spark started ({place}); see its output above{hint}") from error
        raise SparkUnavailable(f"cannot start Spark on {place}: {describe(error)}") from error
    return session


def close_session(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:  # a remote session may be gone already, which is fine
        pass
