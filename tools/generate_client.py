"""Makes ``strandline/client/synchronous`` from ``strandline/client/asynchronous``.

``python tools/generate_client.py`` writes it, ``--check`` says whether it is up to date.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "strandline" / "client" / "asynchronous"
TARGET = ROOT / "strandline" / "client" / "synchronous"

#: What is another word without an event loop. Classes that begin with Async lose that, unless they are told here.
WORDS = {
    "AsyncBaseTransport": "BaseTransport",
    "AsyncHTTPTransport": "HTTPTransport",
    "AsyncCrew": "SyncCrew",
    "AsyncFlag": "SyncFlag",
    "AsyncLock": "SyncLock",
    "AsyncResult": "SyncResult",
    "aclose": "close",
    "aiter": "iter",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "async_check": "sync_check",
    "async_sleep": "sync_sleep",
    "async_told_to_stop": "sync_told_to_stop",
    "asynchronous": "synchronous",
    "handle_async_request": "handle_request",
}
INITIAL = (
    '"""The client for threads. Made from ``strandline.client.asynchronous`` by ``tools/generate_client.py``: '
    'change that."""\n'
)
#: Stands before the docstring of each made module.
NOTICE = "# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.\n\n"


class Words(dict[str, str]):
    """The words above, and ``AsyncTopic`` becomes ``Topic``."""

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or self._is_ours(name)

    def __missing__(self, name: str) -> str:
        return name.removeprefix("Async")

    @staticmethod
    def _is_ours(name: object) -> bool:
        return isinstance(name, str) and name.startswith("Async") and name[5:6].isupper()


def generate(into: Path) -> None:
    """Write all modules into a directory that is empty."""
    rule = unasync.Rule(str(SOURCE), str(into))
    rule.token_replacements = Words({**rule.token_replacements, **WORDS})
    for module in sorted(SOURCE.glob("*.py")):
        unasync.unasync_files([str(module)], [rule])
        made = into / module.name
        made.write_text(INITIAL if module.name == "__init__.py" else NOTICE + made.read_text())
    settings = ["--quiet", "--config", str(ROOT / "pyproject.toml")]
    ruff = [str(Path(sys.executable).parent / "ruff")]
    environment = {**os.environ, "RUFF_NO_CACHE": "true"}
    fix = ["check", "--fix-only", "--unsafe-fixes", "--select", "I,F401,UP", *settings, str(into)]
    subprocess.run([*ruff, *fix], check=True, env=environment)
    subprocess.run([*ruff, "format", *settings, str(into)], check=True, env=environment)


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.glob("*.py"))}


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "synchronous"
        generate(made)
        new, old = contents(made), contents(TARGET)
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))
        if stale:
            print(f"not up to date: {', '.join(stale)}; run python tools/generate_client.py", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(exist_ok=True)
    for name in old.keys() - new.keys():
        (TARGET / name).unlink()
    for name, text in new.items():
        if old.get(name) != text:
            (TARGET / name).write_text(text)
            print(f"wrote {(TARGET / name).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
