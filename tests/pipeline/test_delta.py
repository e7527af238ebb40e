from __future__ import annotations

from pathlib import Path

import pytest

from strandline.pipeline import delta
from strandline.pipeline.delta import CATALOG, EXTENSIONS, JAR_PACKAGES, DeltaMissing, delta_settings, find_jars

GIVEN = {"spark.jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar"}


@pytest.fixture(autouse=True)
def this_machine_has_no_delta(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(delta, "_is_installed", lambda: False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_session_has_delta_only_with_its_jars() -> None:
    assert delta_settings({}, needed=False) == {}
    found = delta_settings({**GIVEN, EXTENSIONS: "my.Extension", CATALOG: "my.Catalog"}, needed=False)
    assert found[EXTENSIONS] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert found[CATALOG] == "my.Catalog"
    assert JAR_PACKAGES not in found


def test_a_session_that_needs_delta_fetches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "version", lambda package: "4.2.1")
    found = delta_settings({JAR_PACKAGES: "a:b:1"}, needed=True)
    assert found[JAR_PACKAGES].startswith("a:b:1,io.delta:delta-spark_4.2_2.13:")


def test_another_version_of_spark_needs_its_own_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "version", lambda package: "4.3.0")
    with pytest.raises(DeltaMissing, match=r"there for Spark 4.2, but PySpark 4.3.0 is installed: pip install"):
        delta_settings({}, needed=True)
    assert EXTENSIONS in delta_settings(GIVEN, needed=True)


def test_jars_are_found_in_the_caches_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "version", lambda package: "4.2.1")
    names = [package.split(":")[1:] for package in delta.PACKAGES.split(",")]
    (spark, spark_version), (storage, storage_version) = names
    maven = tmp_path / ".m2/repository/io/delta" / spark / spark_version / f"{spark}-{spark_version}.jar"
    maven.parent.mkdir(parents=True)
    maven.touch()
    with pytest.raises(DeltaMissing, match=r"not on this machine; give them with --jar"):
        find_jars()
    ivy = tmp_path / ".ivy2.5.2" / "jars" / f"io.delta_{storage}-{storage_version}.jar"
    ivy.parent.mkdir(parents=True)
    ivy.touch()
    assert find_jars() == [str(maven), str(ivy)]
    settings = delta_settings({"spark.jars": "mine.jar"}, needed=True)
    assert settings["spark.jars"] == f"mine.jar,{maven},{ivy}"
    assert JAR_PACKAGES not in settings
