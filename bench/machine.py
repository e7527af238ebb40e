"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    file_system: str
    #: The load of the whole machine when the run began. Other work makes figures worse and spreads wider.
    load: float
    #: Whether the benchmark ran before all other work of the machine.
    is_real_time: bool = False

    def __str__(self) -> str:
        priority = ", real-time priority" if self.is_real_time else ""
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_gb:.0f} GB memory, {self.kernel}, "
            f"Python {self.python}, {self.file_system}; load {self.load:.1f} when the run began{priority}"
        )


def describe(directory: Path) -> Machine:
    """The machine, and the file system that ``directory`` is on."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=pages * page / 2**30,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        file_system=_file_system(directory),
        load=os.getloadavg()[0],
        is_real_time=os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the innermost mount that holds the directory."""
    place = directory.resolve()
    found = ("", "unknown file system")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if place.is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]
