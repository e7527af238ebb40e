from __future__ import annotations

from asyncio import sleep
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from support.tables_in_process import Bed, Poll, Vote

from strandline.engine import Batch
from strandline.tables import BadDeclaration, Hooks, RateLimit, TableError, Tables, make_log

POLL = make_log("poll", parent="site", schema=Poll)


def test_a_declaration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        POLL.name = "other"  # type: ignore[misc]
    assert repr(POLL) == "<TableDeclaration 'poll'>"


def test_options_can_be_written_in_several_ways() -> None:
    for pub in ("isPublic", {"parentField": "isPublic"}):
        assert make_log("vote", parent=POLL, schema=Vote, pub=pub).public_field == "isPublic"
    for search in ("comment", {"field": "comment"}, ["comment"]):
        assert make_log("vote", parent=POLL, schema=Vote, search=search).search_fields == ("comment",)
    assert make_log("vote", parent=POLL, schema=Vote, search=True).search_fields == ("voter", "comment")
    assert make_log("vote", parent=POLL, schema=Vote, rate_limit=5).rate_limit == RateLimit(5, 60_000)
    assert make_log("vote", parent=POLL, schema=Vote, search=False, pub=False, rate_limit=None).search_fields == ()


@pytest.mark.parametrize("name", ["", "1x", "a/b", "a~b", "a b", "ä", "x" * 65, "a\n", 3])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(BadDeclaration):
        make_log(name, parent="site", schema=Poll)


@pytest.mark.parametrize(
    "options",
    [
        {"parent": ""},
        {"parent": 3},
        {"parent": POLL, "parent_row": dict},
        {"pub": "isPublic"},
        {"parent": POLL, "pub": "nonsense"},
        {"parent": POLL, "pub": {"field": "isPublic"}},
        {"parent": POLL, "pub": 1.5},
        {"search": "nonsense"},
        {"search": {"index": "comment"}},
        {"search": []},
        {"moderators": "moderator"},
        {"moderators": [""]},
        {"moderators": 7},
        {"with_author": sleep},
        {"parent_row": sleep},
        {"rate_limit": {"window": 1000}},
        {"rate_limit": {"max": 1, "per": 1000}},
        {"rate_limit": {"max": 0}},
        {"schema": {"type": "object"}, "search": True},
        {"schema": {"type": "object"}, "search": [str(number) for number in range(501)]},
        {"rate_limit": 0},
        {"rate_limit": True},
        {"rate_limit": "30"},
        {"soft_delete": 1},
        {"hooks": {}},
        {"with_author": "users"},
        {"parent_row": 1},
        {"durability": "ephemeral"},
        {"durability": "sometimes"},
        {"schema": None},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_bad_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadDeclaration):
        make_log("vote", **{"parent": "site", "schema": Vote, **options})


@pytest.mark.parametrize("limit", [(0, 1), (1, 0), (1.5, 1), (True, 1)])
def test_a_bad_rate_limit_is_refused(limit: Any) -> None:
    with pytest.raises(BadDeclaration):
        RateLimit(*limit)


def test_a_rate_limit_may_be_a_number_or_a_mapping() -> None:
    for limit in (5, {"max": 5}, {"max": 5, "window": 60_000}):
        assert make_log("poll", parent="site", schema=Poll, rate_limit=limit).rate_limit == RateLimit(5, 60_000)


def test_tables_are_found_by_name(plain_bed: Bed) -> None:
    tables = plain_bed.bind(POLL)
    assert "poll" in tables
    assert [table.name for table in tables] == ["poll"]
    assert len(tables) == 1
    with pytest.raises(TableError) as error:
        tables["vote"]
    assert error.value.code == "NOT_FOUND"


def test_tables_that_do_not_go_together_are_refused(plain_bed: Bed) -> None:
    with pytest.raises(BadDeclaration, match="table poll is declared twice"):
        Tables(plain_bed.engine, [POLL, POLL])
    with pytest.raises(BadDeclaration, match="parent"):
        Tables(plain_bed.engine, [make_log("vote", parent=POLL, schema=Vote)])


@pytest.mark.parametrize("parent", ["", "a/b", "a\nb", "x" * 257, "\ud800", 3, None])
def test_a_bad_parent_is_not_valid(plain_bed: Bed, parent: Any) -> None:
    polls = plain_bed.bind(POLL)["poll"]
    for use in (polls.list, polls.purge_by_parent, polls.view, lambda parent: polls.append(parent, {"title": "t"})):
        with pytest.raises(TableError) as error:
            use(parent)
        assert (error.value.code, error.value.fields) == ("VALIDATION_FAILED", ["parent"])


@pytest.mark.parametrize(
    "id", ["", "main", "main:", "main:0", "main:x", ":1", "a/b:1", "main:1 ", 7, None, "m:" + "9" * 30]
)
def test_a_bad_id_is_not_valid(plain_bed: Bed, id: Any) -> None:
    polls = plain_bed.bind(POLL)["poll"]
    for use in (polls.read, polls.rm, polls.history, polls.restore, lambda id: polls.update(id, {"title": "t"})):
        with pytest.raises(TableError) as error:
            use(id)
        assert error.value.code == "VALIDATION_FAILED"


@pytest.mark.parametrize(
    "use",
    [
        lambda polls: polls.list("p", limit=0),
        lambda polls: polls.list("p", limit=True),
        lambda polls: polls.list("p", cursor="x"),
        lambda polls: polls.list("p", cursor=3),
        lambda polls: polls.list("p", where=[]),
        lambda polls: polls.list_after("p", -1),
        lambda polls: polls.list_after("p", "1"),
        lambda polls: polls.counts("p", "nonsense"),
        lambda polls: polls.counts("p", ["title"]),
        lambda polls: polls.indexed("p", ""),
        lambda polls: polls.search("p", "title"),
        lambda polls: polls.append("p", {"title": "t"}, idempotency_key="x" * 1025),
        lambda polls: polls.append("p", {"title": "t"}, idempotency_key=3),
        lambda polls: polls.append("p", {"title": "t"}, user=""),
        lambda polls: polls.append("p", {"title": "t"}, user=3),
        lambda polls: polls.append("p", {"title": "\ud800"}),
        lambda polls: polls.append_bulk("p", {"title": "t"}),
        lambda polls: polls.append_bulk("p", "title"),
        lambda polls: polls.update("p:1", {"title": "t"}, expected_updated_at="now"),
    ],
)
def test_a_bad_argument_is_not_valid_and_leaves_nothing_behind(plain_bed: Bed, use: Any) -> None:
    polls = plain_bed.bind(POLL)["poll"]
    with pytest.raises(TableError) as error:
        use(polls)
    assert error.value.code == "VALIDATION_FAILED"
    assert plain_bed.logs() == []


def test_the_longest_names_fit(bed: Bed) -> None:
    name, parent = "t" * 64, "ä" * 128
    table = bed.bind(make_log(name, parent="p", schema=Poll))[name]
    id = bed.done(table.append(parent, {"title": "t"}, idempotency_key="k" * 1024, user="u" * 1024)).id
    assert bed.done(table.update(id, {"title": "u"})).payload["title"] == "u"


def test_a_log_that_belongs_to_somebody_else_is_left_alone(plain_bed: Bed) -> None:
    plain_bed.engine.create("poll/p").wait()
    plain_bed.engine.log("poll/p").append(Batch.of(b"theirs")).wait()
    polls = plain_bed.bind(POLL)["poll"]
    for use in (lambda: polls.append("p", {"title": "t"}), lambda: polls.list("p"), lambda: polls.purge_by_parent("p")):
        with pytest.raises(TableError) as error:
            use()
        assert error.value.code == "CONFLICT"
    assert plain_bed.engine.log("poll/p").head == 1


def test_the_logs_of_tables_say_that_they_are(bed: Bed) -> None:
    polls = bed.bind(POLL)["poll"]
    bed.done(polls.append("p", {"title": "t"}, user="u", idempotency_key="k"))
    bed.done(polls.update("p:1", {"title": "n"}, user="u"))
    assert bed.engine.names("poll") == ["poll/p", "poll~changes/p"]
    for name in bed.engine.names("poll"):
        assert "table" in bed.engine.log(name).notes
        assert bed.engine.log(name).config.durability == "fsync"
    (row,) = bed.engine.log("poll/p").read()
    assert (row.key, row.meta) == ("k", b'{"user":"u"}')
    assert row.data == b'{"title":"n","isPublic":false,"$updatedAt":%d}' % (row.ts + 1)
    (change,) = bed.engine.log("poll~changes/p").read()
    assert change.key == "edit:1"
    assert change.data == (
        b'{"op":"update","seq":1,"at":%d,"user":"u","author":"u","soft":false,'
        b'"previous":{"title":"t","isPublic":false}}' % row.ts
    )


def test_hooks_must_be_said_by_name() -> None:
    with pytest.raises(TypeError):
        Hooks(before_create=print)  # type: ignore[call-arg]
