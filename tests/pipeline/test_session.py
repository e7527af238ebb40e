from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from strandline.pipeline import spark_session
from strandline.pipeline.java import JavaMissing
from strandline.pipeline.spark_session import (
    INSTALL,
    SparkUnavailable,
    driver_settings,
    open_session,
    what_is_missing,
    with_attempts,
)

INSTALLED = {"pyspark": "4.2.1", "pandas": "2.3.3", "grpcio": "1.76.0", "googleapis-common-protos": "1.70.0"}


class Machine:
    """What is installed on it, and why there is no Java on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packages = dict(INSTALLED)
        self.java_fault = ""
        monkeypatch.setattr(spark_session, "version", self.version)
        monkeypatch.setattr(spark_session, "find_java", self.find_java)

    def version(self, package: str) -> str:
        if package not in self.packages:
            raise PackageNotFoundError(package)
        return self.packages[package]

    def find_java(self) -> None:
        if self.java_fault:
            raise JavaMissing(self.java_fault)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_where_everything_is_there_nothing_is_missing(machine: Machine) -> None:
    assert what_is_missing() == []
    assert what_is_missing("sc://host:15002") == []


@pytest.mark.parametrize("package", ["pyspark", "pandas"])
def test_a_missing_package_is_told_with_how_to_install_it(machine: Machine, package: str) -> None:
    del machine.packages[package]
    assert what_is_missing() == [f"The Python package {package} is not installed: {INSTALL}"]
    with pytest.raises(SparkUnavailable, match=package):
        open_session()


def test_a_package_that_is_too_old_is_told(machine: Machine) -> None:
    machine.packages["pyspark"] = "3.5.1"
    assert what_is_missing() == [f"pyspark 3.5.1 is too old, need at least 4.2: {INSTALL}"]


def test_a_missing_java_is_told_and_everything_else_too(machine: Machine) -> None:
    machine.java_fault = "Spark needs Java"
    del machine.packages["pandas"]
    assert len(what_is_missing("spark://cluster:7077")) == 2
    assert what_is_missing()[1] == "Spark needs Java"


def test_spark_connect_needs_no_java_but_packages_of_its_own(machine: Machine) -> None:
    machine.java_fault = "Spark needs Java"
    assert what_is_missing("sc://host") == []
    del machine.packages["grpcio"]
    assert [sentence.split(" is not")[0] for sentence in what_is_missing("sc://host")] == ["The Python package grpcio"]
    with pytest.raises(SparkUnavailable, match="grpcio"):
        open_session(remote="sc://host")


def test_only_a_local_driver_stays_on_this_machine() -> None:
    assert driver_settings("local[2]", True, {})["spark.driver.host"] == "127.0.0.1"
    cluster = driver_settings("spark://cluster:7077", True, {})
    assert "spark.driver.host" not in cluster
    assert str(Path(spark_session.__file__).parents[2]) in cluster["spark.executorEnv.PYTHONPATH"]


def test_javas_options_are_added_to_and_not_replaced() -> None:
    options = driver_settings("local", True, {"spark.driver.extraJavaOptions": "-Dmine=1"})[
        "spark.driver.extraJavaOptions"
    ]
    assert "log4j2" in options
    assert spark_session.LIGHT_JAVA in options
    assert options.endswith("-Dmine=1")
    assert spark_session.LIGHT_JAVA not in driver_settings("local", False, {})["spark.driver.extraJavaOptions"]


PROGRAM = """
import os, sys
from strandline.pipeline.spark_session import SparkUnavailable, open_session
try:
    open_session("local[1]")
except SparkUnavailable as error:
    print(error)
    sys.exit(7)
"""


def test_a_java_that_ends_at_once_is_an_error_and_no_hang(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        '#!/bin/sh\ncase "$*" in *-version*) echo "  java.specification.version = 21"\n'
        f'echo "  java.home = {home}";;\n'
        "*) echo 'cannot reserve memory' >&2; exit 1;; esac\n"
    )
    java.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 7, ran.stderr
    assert "Java exited before Spark started" in ran.stdout
    assert "cannot reserve memory" in ran.stderr


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local", "local"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_on_this_machine_a_task_is_tried_as_often_as_on_a_cluster(master: str, used: str) -> None:
    assert with_attempts(master) == used
