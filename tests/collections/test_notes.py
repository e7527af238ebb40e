"""What other protocols and the pipeline learn of a collection from the logs of its documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.collections_in_process import opened

from strandline.collections import Collection, Collections, Namespace
from strandline.engine import Engine
from strandline.engine.ownership import REGISTRY, LogOwner, log_owner
from strandline.schema.log_search import log_search

PAGE = Collection(name="page", storage_path="page/{id}", read_roles=("public",), write_roles=("public",))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, background=False) as engine:
        yield engine


def posts(*search: str, path: str = "posts/{id}") -> Collection:
    return opened("posts", path, search=search)


def searched_in(engine: Engine, name: str) -> list[str]:
    search = log_search(engine.log(name).notes.get(REGISTRY))
    return [] if search is None else list(search.config.fields)


def owner_of(engine: Engine, name: str) -> LogOwner | None:
    return log_owner(name, engine.log(name).notes)


def test_a_document_carries_its_collection_and_how_it_is_searched(engine: Engine) -> None:
    collections = Collections(engine, [posts("title", "text"), PAGE])
    collections.append("posts/1", {"title": "a"}).wait()
    collections.push("page/1", {"title": "a"}, base_hash=None).wait()
    assert searched_in(engine, "posts/1") == ["title", "text"]
    assert searched_in(engine, "page/1") == []
    assert owner_of(engine, "posts/1") == LogOwner("collection", "posts")
    assert owner_of(engine, "page/1") == LogOwner("collection", "page", versions=True)


def test_a_changed_declaration_reaches_existing_documents(engine: Engine) -> None:
    Collections(engine, [posts()]).append("posts/1", {"title": "a"}).wait()
    for search in (("title",), ("text",), ()):
        Collections(engine, [posts(*search)])
        assert searched_in(engine, "posts/1") == list(search)
    Collections(engine, [posts("title")])
    Collections(engine, [PAGE])
    assert searched_in(engine, "posts/1") == ["title"], "a collection that is not declared any more"


def test_collections_of_the_same_name_in_namespaces_are_told_apart_by_their_paths(engine: Engine) -> None:
    here, there = posts("title"), posts("text", path="there/{id}")
    collections = Collections(engine, [here, Namespace(name="other", collections=[there])])
    collections.append("posts/1", {}).wait()
    collections.append("there/1", {}, namespace="other").wait()
    Collections(engine, [posts("title", "more"), Namespace(name="other", collections=[there])])
    assert [searched_in(engine, name) for name in ("posts/1", "there/1")] == [["title", "more"], ["text"]]
