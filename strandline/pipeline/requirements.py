"""What a machine lacks for the pipeline to run. Asking costs little: Spark is not imported for it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from strandline.pipeline.java import JavaMissing, find_java

INSTALL = "pip install 'strandline[spark]'"

#: Packages that the work in Spark needs, and the oldest versions that will do.
PACKAGES = {"pyspark": (4, 3), "pandas": (2, 2)}
#: What Spark Connect needs besides.
CONNECT_PACKAGES = {"grpcio": (1, 48), "googleapis-common-protos": (1, 56)}


class SparkUnavailable(Exception):
    """Spark cannot be used here. The message says what is missing, and how to mend it."""


def what_is_missing(master: str = "local[*]") -> list[str]:
    """A sentence for everything that is missing to run on this master; empty: it can begin."""
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
        return f"{package} {found} is too old, {'.'.join(map(str, oldest))} is needed: {INSTALL}"
    return ""
