from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_strandline import DefaultSource
from strandline.pipeline.source.datasource import PackageMissing


def test_spark_finds_the_source_by_its_name() -> None:
    assert DefaultSource.name() == "strandline"


def test_importing_it_needs_neither_a_server_nor_the_packages_that_reading_needs() -> None:
    """Spark imports it for users of other sources too."""
    program = (
        "import sys, pyspark_strandline\n"
        "print(sorted({'httpx', 'msgspec', 'deltalake', 'duckdb', 'strandline.engine'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("strandline.pipeline.source.")]:
        if not name.endswith("datasource"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(PackageMissing, match=r"needs the Python package 'msgspec'.*pip install"):
        DefaultSource({"path": "/data"}).schema()
