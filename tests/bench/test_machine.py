from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from bench.machine import describe


def test_the_line_above_a_table_says_whether_the_benchmark_had_real_time_priority(tmp_path: Path) -> None:
    machine = replace(describe(tmp_path), load=1.25, is_real_time=False)
    assert str(machine).endswith("; load 1.2 when the run began")
    assert str(replace(machine, is_real_time=True)).endswith("; load 1.2 when the run began, real-time priority")
