"""How ``pytest -n`` gives the tests to its processes: file by file, and the files that take longest first.

The tests of a file share what is expensive to start. A process that gets a long file last keeps the others waiting.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

#: The files that take longest, the longest first. A file that takes more than 20 seconds on a quiet machine belongs
#: here; `pytest --durations=50` shows which. Where a test of a file is in a group, the whole group is started first.
LONG = (
    "tests/pipeline/declared/test_on_spark.py",
    "tests/pipeline/source/test_kill.py",
    "tests/docs/test_guides.py",
    "tests/engine/test_crash_sweep.py",
    "tests/engine/test_model.py",
    "tests/pipeline/test_commands.py",
    "tests/pipeline/test_kafka.py",
    "tests/browser/test_poll_page.py",
    "tests/engine/test_kill.py",
    "tests/pipeline/test_two_drivers.py",
    "tests/engine/verify/test_repair.py",
    "tests/protocols/topics/test_openapi.py",
    "tests/server/test_lane_routes.py",
    "tests/server/test_replica_failovers.py",
    "tests/cli/demo/test_command.py",
    "tests/engine/backup/test_restoration.py",
    "tests/tables/test_types.py",
    "tests/docs/test_site.py",
)


class FileScheduling(LoadGroupScheduling):
    """The tests of a file run in one process, and so do those that are marked with the same ``xdist_group``."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


def place(nodeid: str) -> int:
    """Where a test stands in the order of all."""
    path = nodeid.partition("::")[0]
    return LONG.index(path) if path in LONG else len(LONG)
