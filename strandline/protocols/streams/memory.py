"""The memory that the process uses, and the highest values so far."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict

from strandline.arrow import pa
from strandline.engine import Engine
from strandline.late_import import is_loaded
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.wire.server import HighWater, RuntimeBytes
from strandline.query.searcher import Searcher

#: The file in which Linux reports the memory of a process.
STATUS = "/proc/self/status"

#: This server has no SQLite.
SQLITE: dict[str, Any] = {
    "available": False,
    "source": "unavailable",
    **dict.fromkeys(
        (
            "memory_used_bytes", "memory_highwater_bytes", "pagecache_used_slots", "pagecache_used_slots_highwater",
            "pagecache_overflow_bytes", "pagecache_overflow_highwater_bytes", "malloc_count", "malloc_count_highwater",
            "open_connections", "prepared_statements",
        ),
        0,
    ),
}  # fmt: skip


class _MallocInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def _find_malloc_info() -> Callable[[], _MallocInfo] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):  # pragma: no cover - a C library other than glibc
        return None
    function.restype = _MallocInfo
    found: Callable[[], _MallocInfo] = function
    return found


_malloc_info = _find_malloc_info()


def read_status(path: str = STATUS) -> dict[str, int]:
    """The sizes in the file, in bytes, by name; empty if the file does not exist."""
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    parts = (line.split() for line in lines)
    return {words[0][:-1]: int(words[1]) * 1024 for words in parts if len(words) == 3 and words[2] == "kB"}


class Memory:
    """``sample`` measures everything; call it from time to time to see peaks. Times are milliseconds."""

    def __init__(
        self, engine: Engine, searcher: Searcher, waiting_bytes: Callable[[], int], status: str = STATUS
    ) -> None:
        self._engine = engine
        self._searcher = searcher
        self._waiting_bytes = waiting_bytes
        self._status = status
        #: The values of the last sample.
        self.rss = 0
        self.process: dict[str, int] = {}
        self.breakdown: dict[str, Any] = {}
        self.runtime_bytes = self._subsystems()
        self.totals: dict[str, int] = {}
        #: The highest values so far, and when they were reached.
        self.high_water = HighWater(process={}, process_breakdown={}, sqlite={}, runtime_bytes={}, runtime_totals={})

    @property
    def max_rss(self) -> int:
        most: int = self.high_water.process.get("rss_bytes", {}).get("value", 0)
        return most

    def sample(self, now: int) -> None:
        status = read_status(self._status)
        arrow = pa.total_allocated_bytes() if is_loaded("pyarrow") else 0
        self.rss = status.get("VmRSS", 0)
        own = status.get("RssAnon", 0)
        free = 0 if _malloc_info is None else _malloc_info().fordblks
        self.process = {
            "rss_bytes": self.rss,
            # The private memory of the process, and the part of it that the C library does not hold free.
            "heap_total_bytes": own,
            "heap_used_bytes": max(own - free, 0),
            # Arrow has an allocator of its own.
            "external_bytes": arrow,
            "array_buffers_bytes": arrow,
        }
        self.runtime_bytes = self._subsystems()
        self.totals = {_TOTALS[name]: sum(sizes.values()) for name, sizes in asdict(self.runtime_bytes).items()}
        self.breakdown = self._break_down(status)
        self._raise_marks(now)

    def _subsystems(self) -> RuntimeBytes:
        engine = self._engine
        store, options = engine.store, engine.options
        return RuntimeBytes(
            heap_estimates={
                # Records that are not sealed yet are in memory as well as in the journal.
                "unsealed_tail_bytes": engine.stats().journal_bytes,
                "block_cache_bytes": store.cached_bytes,
                "search_index_bytes": self._searcher.indexes.nbytes,
            },
            mapped_files={"open_segment_bytes": store.mapped_bytes},
            disk_caches={"cold_segment_cache_bytes": store.cold_cached_bytes},
            configured_budgets={
                "block_cache_bytes": options.cache_bytes,
                "cold_segment_cache_bytes": options.cold_cache_bytes if store.has_cold_tier else 0,
                "search_index_bytes": self._searcher.indexes.budget,
            },
            pipeline_buffers={"appends_waiting_bytes": self._waiting_bytes()},
            sqlite_runtime={"memory_used_bytes": 0},
        )

    def _break_down(self, status: Mapping[str, int]) -> dict[str, Any]:
        """Attributed sizes are estimates, and mapped files need not be completely in memory. The rest is what is
        certainly not accounted for: 0 if the estimates exceed the total."""
        own, files = status.get("RssAnon", 0), status.get("RssFile", 0)
        tracked = self.totals["heap_estimate_bytes"]
        mapped = self.totals["mapped_file_bytes"]
        return {
            "source": "linux_proc_status" if status else "process_memory_usage_only",
            "rss_anon_bytes": own,
            "rss_file_bytes": files,
            "rss_shmem_bytes": status.get("RssShmem", 0),
            "js_managed_bytes": 0,
            "js_external_non_array_buffers_bytes": 0,
            "mapped_file_bytes": mapped,
            "sqlite_runtime_bytes": 0,
            "unattributed_anon_bytes": max(own - tracked, 0),
            "unattributed_rss_bytes": max(self.rss - tracked - min(mapped, files), 0),
        }

    def _raise_marks(self, now: int) -> None:
        seen = {
            "process": self.process,
            "process_breakdown": {name: size for name, size in self.breakdown.items() if name != "source"},
            "sqlite": {name: value for name, value in SQLITE.items() if type(value) is int},
            "runtime_bytes": asdict(self.runtime_bytes),
            "runtime_totals": self.totals,
        }
        _raise(asdict(self.high_water), seen, iso(now))


_TOTALS = {
    "heap_estimates": "heap_estimate_bytes",
    "mapped_files": "mapped_file_bytes",
    "disk_caches": "disk_cache_bytes",
    "configured_budgets": "configured_budget_bytes",
    "pipeline_buffers": "pipeline_buffer_bytes",
    "sqlite_runtime": "sqlite_runtime_bytes",
}


def _raise(marks: dict[str, Any], seen: Mapping[str, Any], at: str) -> None:
    for name, value in seen.items():
        if isinstance(value, Mapping):
            _raise(marks.setdefault(name, {}), value, at)
        elif name not in marks or value > marks[name]["value"]:
            marks[name] = {"value": value, "at": at}
