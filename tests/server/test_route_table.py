"""Which routes a path has."""

from __future__ import annotations

import pytest

from strandline.server.route_table import Paths
from strandline.service.http import Call, Reply, Route


def answer(call: Call) -> Reply:
    return Reply(b"{}")


def paths(*routes: tuple[str, str, str]) -> Paths:
    found = Paths()
    for method, path, spans in routes:
        found.add(Route(method=method, path=path, handler=answer, spans=spans))
    return found


STREAMS = paths(
    ("GET", "/v1/stream/{name}", "name"),
    ("PUT", "/v1/stream/{name}", "name"),
    ("GET", "/v1/stream/{name}/_schema", "name"),
    ("POST", "/v1/stream/{name}/touch/templates/activate", "name"),
    ("GET", "/v1/stream/{name}/pk/{key}", "name"),
    ("GET", "/v1/stream/__ds/jwks.json", ""),
    ("GET", "/v1/streams", ""),
)


@pytest.mark.parametrize(
    ("path", "route", "params"),
    [
        ("/v1/stream/a", "/v1/stream/{name}", {"name": "a"}),
        ("/v1/stream/a/b/c", "/v1/stream/{name}", {"name": "a/b/c"}),
        ("/v1/stream/a%2Fb", "/v1/stream/{name}", {"name": "a/b"}),
        ("/v1/stream/a/b///", "/v1/stream/{name}", {"name": "a/b"}),
        ("/v1/stream//a", "/v1/stream/{name}", {"name": "/a"}),
        ("/v1/stream/a/_schema", "/v1/stream/{name}/_schema", {"name": "a"}),
        ("/v1/stream/a/b/_schema", "/v1/stream/{name}/_schema", {"name": "a/b"}),
        ("/v1/stream/_schema/a", "/v1/stream/{name}", {"name": "_schema/a"}),
        ("/v1/stream/a/pk/k%2F1", "/v1/stream/{name}/pk/{key}", {"name": "a", "key": "k/1"}),
        ("/v1/stream/__ds/jwks.json", "/v1/stream/__ds/jwks.json", {}),
        ("/v1/streams", "/v1/streams", {}),
        ("/v1/stream/", "/v1/stream/{name}", {"name": ""}),
    ],
)
def test_what_follows_a_name_is_found_from_the_end(path: str, route: str, params: dict[str, str]) -> None:
    found = STREAMS.find(path)

    assert found is not None
    assert next(iter(found[0].values())).path == route
    assert found[1] == params


def test_an_alias_of_a_path_has_the_same_routes() -> None:
    found = Paths()
    for path in ("/v1/stream/{name}", "/v1/stream/{name}/pk/{key}"):
        found.add(Route(method="GET", path=path, handler=answer, spans="name", alias="/v1/streams"))
    found.add(Route(method="GET", path="/v1/streams", handler=answer))
    for given, path, params in (
        ("/v1/streams/a/b", "/v1/stream/{name}", {"name": "a/b"}),
        ("/v1/stream/a/b", "/v1/stream/{name}", {"name": "a/b"}),
        ("/v1/streams/streams/pk/k", "/v1/stream/{name}/pk/{key}", {"name": "streams", "key": "k"}),
        ("/v1/streams", "/v1/streams", {}),
    ):
        routes, values = found.find(given) or ({}, {})
        assert (routes["GET"].path, values) == (path, params)
    assert found.find("/v2/streams/a") is None
    assert found.find("/v1/streamss/a") is None


def test_the_methods_of_a_path_are_those_of_its_most_special_pattern() -> None:
    found = STREAMS.find("/v1/stream/a/_schema")

    assert found is not None
    assert set(found[0]) == {"GET"}, "a PUT there does not make a stream that is called a/_schema"


@pytest.mark.parametrize("path", ["/v1", "/", "", "/v1/other/a", "/v1/streams/a", "/v2/stream/a"])
def test_a_path_that_nothing_matches_is_not_found(path: str) -> None:
    assert STREAMS.find(path) is None


def test_a_parameter_that_spans_nothing_else_needs_its_segment() -> None:
    topics = paths(("GET", "/v0/topics/{topic}", ""))

    assert topics.find("/v0/topics/") is None
    assert topics.find("/v0/topics/a/b") is None
    assert topics.find("/v0/topics/a") is not None


@pytest.mark.parametrize("backwards", [False, True])
def test_the_longer_beginning_counts_whatever_was_added_first(backwards: bool) -> None:
    routes = [
        ("GET", "/s/{name}", "name"),
        ("GET", "/s/own/{rest}", "rest"),
        ("GET", "/s/own/{id}/of/{name}", "name"),
    ]
    found = paths(*(reversed(routes) if backwards else routes))
    for path, route, params in (
        ("/s/own/7/of/a/b", "/s/own/{id}/of/{name}", {"id": "7", "name": "a/b"}),
        ("/s/own/7/off", "/s/own/{rest}", {"rest": "7/off"}),
        ("/s/owner/7", "/s/{name}", {"name": "owner/7"}),
    ):
        methods, given = found.find(path) or ({}, {})
        assert (methods["GET"].path, given) == (route, params)


def test_a_path_without_parameters_belongs_to_whoever_was_first() -> None:
    earlier = paths(("GET", "/things/{name}", ""), ("POST", "/things/all", ""))
    later = paths(("POST", "/things/all", ""), ("GET", "/things/{name}", ""))

    for found, method, params in ((earlier, "GET", {"name": "all"}), (later, "POST", {})):
        at = found.find("/things/all")
        assert at is not None
        assert (list(at[0]), at[1]) == ([method], params)
