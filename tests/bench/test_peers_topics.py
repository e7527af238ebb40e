"""The side of topics. Its program is not in any package, so these tests start this server instead, with the variables
that both have: it implements the same protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from bench import peers_topics
from bench.peers_history import Killed
from bench.peers_run import available
from bench.peers_sides import BATCH, PAGE, PAYLOAD, Side, fill
from bench.peers_work import FACES, work
from bench.workload import payloads

pytestmark = pytest.mark.xdist_group("bench-peers")


@pytest.fixture(scope="module", autouse=True)
def _program(place: Path) -> Iterator[None]:
    program = place / "bin" / peers_topics.NAME
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nSTRANDLINE_PIPELINE=off exec {sys.executable} -m strandline serve\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(program.parent), prepend=":")
        yield


@pytest.fixture(scope="module")
def side(place: Path, _program: None) -> Iterator[Side]:
    with peers_topics.serving(place / "topics", ("disk", "fsync")) as started:
        yield started


def test_a_row_names_its_version_and_durability(side: Side) -> None:
    assert side.classes["fsync"] == f"{strandline.__version__}, fsync"
    assert side.name == "topics"


def test_its_files_are_in_its_own_directory(side: Side, place: Path) -> None:
    log = side.create("disk")
    fill(side, log, BATCH)
    assert list((place / "topics" / "data" / "journal").iterdir())
    side.drop(log)


def test_pages_and_catching_up_use_the_same_protocol(side: Side) -> None:
    log = side.create("disk")
    fill(side, log, 2 * PAGE)
    assert side.catch_up(log, 2 * PAGE).amount == 2 * PAGE
    with side.connect(log) as line:
        answer = line.ask(side.page(log, 700, 10))
    assert [record in answer for record in payloads(PAYLOAD)[699:711]] == [False, *[True] * 10, False]
    side.drop(log)


def test_workers_do_every_job_once(side: Side) -> None:
    log = side.create("disk", queue=True)
    fill(side, log, BATCH)
    assert sum(work(FACES[side.face], side.port(log), log.name, 5, 8).jobs) == BATCH
    side.drop(log)


def test_a_history_is_back_after_a_kill(place: Path) -> None:
    assert Killed(peers_topics.PEER, place / "killed-topics", 1000).turn().seconds > 0


def test_without_the_program_it_is_left_out_with_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers_topics, "without_wrk", lambda: "")
    monkeypatch.setenv("PATH", "/nowhere")
    assert available([peers_topics.PEER]) == []
    assert "without topics: topics is not installed (build github.com/slopus/topics" in capsys.readouterr().err
