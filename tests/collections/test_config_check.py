from __future__ import annotations

from typing import Any

import pytest

from strandline.collections.config import (
    AppendOnly,
    Collection,
    CollectionRateLimit,
    CollectionsConfig,
    FieldPermission,
    QueueEvents,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.collections.config_check import check, warnings_about
from strandline.collections.errors import BadCollections

APPEND = AppendOnly()


def collection(**options: Any) -> Collection:
    chosen: dict[str, Any] = {
        "name": "events", "storage_path": "events/{day}", "read_roles": ("user",), "write_roles": ("user",),
        "append_only": APPEND, **options,
    }  # fmt: skip
    return Collection(**chosen)


def errors_of(*collections: Collection, **options: Any) -> tuple[str, ...]:
    try:
        check(CollectionsConfig(collections=collections, **options))
    except BadCollections as error:
        return error.errors
    return ()


def doubts_of(*collections: Collection, **options: Any) -> list[str]:
    config = CollectionsConfig(collections=collections, **options)
    check(config)
    return warnings_about(config)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encryption": "delegated"},
        {"object_schema": {"type": "object", "required": ["a"]}},
        {"ttl_ms": 1},
        {"push_only": True},
        {"listable": True},
        {"search": ("title", "text")},
        {"root_only": True},
        {"queue": QueueEvents(topic="told", subject_param="day")},
        {"rate_limit": CollectionRateLimit(window_ms=1, max_requests=1)},
        {"append_only": AppendOnly(persist=False), "queue": QueueEvents(), "storage_path": "events"},
        {"append_only": AppendOnly(persist=False), "queue": QueueEvents(), "bundle": "b"},
        {"append_only": AppendOnly(max_items=1, chunk_size=1, max_pull_limit=1, max_checkpoint_age_ms=1)},
        {"allowed_mime_types": ("text/plain", "Application/JSON")},
        {"write_roles": ()},
        {"read_roles": (), "pull_only": True, "append_only": None},
    ],
)
def test_what_goes_together(options: dict[str, Any]) -> None:
    assert errors_of(collection(**options)) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_path": "/events"}, "storage_path: it must not start with /"),
        ({"storage_path": "events/{day"}, "storage_path: '{day' is not a placeholder"),
        ({"storage_path": "e" * 600}, "storage_path: it has 600 bytes; expected 1 to 512"),
        ({"storage_path": "a\u200bb"}, "storage_path: it contains non-printable characters"),
        ({"pull_only": True, "push_only": True, "append_only": None}, "it cannot be both pull_only and push_only"),
        ({"pull_only": True}, "append_only cannot be combined with pull_only"),
        ({"allowed_mime_types": ("image/*",)}, "allowed_mime_types must include application/json"),
        ({"max_versions": 5}, "max_versions is for regular documents"),
        ({"allowed_mime_types": (), "append_only": None}, "allowed_mime_types must not be empty"),
        (
            {"allowed_mime_types": ("image/*",), "append_only": None, "object_schema": {}},
            "allowed_mime_types must include application/json: binary collections are not supported",
        ),
        ({"object_schema": {"type": "nonsense"}}, "object_schema is not a JSON Schema: "),
        ({"object_schema": {"$ref": "https://example.org/other"}}, "object_schema is not a JSON Schema: "),
        ({"bundle": "b"}, "append_only cannot be combined with bundle"),
        (
            {"append_only": AppendOnly(persist=False, allow_full=False)},
            "append_only.allow_full requires persist = true",
        ),
        ({"append_only": AppendOnly(persist=False, max_items=1)}, "append_only.max_items requires persist = true"),
        ({"append_only": AppendOnly(persist=False, chunk_size=1)}, "append_only.chunk_size requires persist = true"),
        ({"append_only": AppendOnly(persist=False, max_pull_limit=1)}, "append_only.max_pull_limit requires persist"),
        (
            {"append_only": AppendOnly(persist=False, max_checkpoint_age_ms=1)},
            "append_only.max_checkpoint_age_ms requires persist",
        ),
        ({"listable": True, "storage_path": "events"}, "listable requires a placeholder as the last segment"),
        ({"listable": True, "storage_path": "{day}/events"}, "listable requires a placeholder as the last segment"),
        ({"listable": True, "append_only": AppendOnly(persist=False)}, "listable cannot be combined with append_only"),
        ({"listable": True, "append_only": None, "bundle": "b"}, "listable cannot be combined with bundle"),
        ({"search": ("a", "a")}, "search names a field twice"),
        ({"search": tuple(map(str, range(501)))}, "search names 501 fields; at most 500 are allowed"),
        ({"search": ("a",), "append_only": None}, "search requires append_only with persist = true"),
        (
            {"search": ("a",), "append_only": AppendOnly(persist=False)},
            "search requires append_only with persist = true",
        ),
        ({"search": ("a",), "encryption": "delegated"}, 'search requires encryption = "none"'),
        ({"root_only": True, "read_roles": ("public",)}, 'root_only cannot be combined with the role "public"'),
        ({"root_only": True, "write_roles": ("public",)}, 'root_only cannot be combined with the role "public"'),
        ({"read_roles": ()}, "read_roles is empty"),
        ({"rate_limit": CollectionRateLimit()}, "rate_limit has no window_ms and max_requests"),
        (
            {
                "rate_limit": CollectionRateLimit(
                    pull=RateRule(window_ms=1, max_requests=1, bucket="ip", ip=RateDimension())
                )
            },
            "rate_limit.pull cannot combine a bucket with limits per identity or ip",
        ),
        (
            {"queue": QueueEvents(subject_param="room")},
            "queue.subject_param: the storage_path has no placeholder {room}",
        ),
        ({"queue": QueueEvents(subject_id_pattern="(")}, "queue.subject_id_pattern is not a regular expression"),
        ({"queue": QueueEvents(topic="a/b")}, "queue.topic: 'a/b' is not a valid topic name"),
        (
            {"storage_path": "events", "queue": QueueEvents()},
            'queue.topic: events cannot be written to the log "events", which is a document of the collection "events"',
        ),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str) -> None:
    (error,) = errors_of(collection(**options))
    assert error.startswith(f'collection "events": {message}')


def test_everything_is_told_at_once() -> None:
    errors = errors_of(collection(read_roles=()), collection(pull_only=True), collection(name="b", storage_path=""))
    assert len(errors) == 4
    with pytest.raises(BadCollections) as caught:
        check(CollectionsConfig(collections=(collection(read_roles=()), collection(pull_only=True))))
    assert str(caught.value).count("\n  - ") == 3


def test_a_name_is_there_once_in_a_namespace() -> None:
    twice = (collection(), collection(storage_path="other"))
    assert errors_of(*twice) == ('collection "events": another collection has the same name',)
    assert errors_of(collection(), namespaces={"acme": (collection(),), "globex": (collection(),)}) == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.b", "its name must consist of letters"),
        ("", "its name must consist of letters"),
        ("a\n", "its name must consist of letters"),
        ("pull", "this name is reserved by the protocol"),
        ("batch", "this name is reserved by the protocol"),
        ("v1", "this name is reserved for another route"),
        ("stream", "this name is reserved for another route"),
        ("tables", "this name is reserved for another route"),
    ],
)
def test_a_namespace_has_a_name_that_is_free(name: str, message: str) -> None:
    (error,) = errors_of(namespaces={name: (collection(),)})
    assert error.startswith(f'namespace "{name}": {message}')


def test_errors_say_in_which_namespace_they_are() -> None:
    assert errors_of(namespaces={"acme": ()}) == ('namespace "acme": it must have at least one collection',)
    (error,) = errors_of(namespaces={"acme": (collection(read_roles=()),)})
    assert error.startswith('namespace "acme": collection "events": read_roles is empty')


def test_a_limit_for_all_collections_completes_the_others() -> None:
    limited = collection(rate_limit=CollectionRateLimit())
    assert errors_of(limited, rate_limit=RateLimit(window_ms=1, max_requests=1)) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write_roles": ("public",)}, 'write_roles has "public"'),
        ({"read_roles": ("cap:read:notes",)}, 'read_roles has "cap:read:notes", which names another collection'),
        ({"write_roles": ("self",)}, 'the role "self" has no effect'),
        ({"append_only": AppendOnly(persist=False)}, "append_only.persist is false and there is no queue"),
        ({"append_only": AppendOnly(chunk_size=1)}, "append_only.chunk_size has no effect"),
    ],
)
def test_what_is_likely_not_meant(options: dict[str, Any], message: str) -> None:
    (doubt,) = doubts_of(collection(**options))
    assert doubt.startswith(f'collection "events": {message}')


@pytest.mark.parametrize(
    ("options", "doubts"),
    [
        ({"read_roles": ("pubic",)}, ['read_roles: no program gives the role "pubic"; did you mean "public"?']),
        (
            {"write_roles": ("device:rot",)},
            ['write_roles: no program gives the role "device:rot"; did you mean "device:root"?'],
        ),
        ({"read_roles": ("staff",)}, ['read_roles: no program gives the role "staff"']),
        (
            {"field_permissions": {"a": FieldPermission(read_roles=("cap:raed:events",))}},
            [
                'field_permissions.a.read_roles: no program gives the role "cap:raed:events"; '
                'did you mean "cap:read:events"?'
            ],
        ),
        ({"read_roles": ("public", "device:root", "cap:list:*", "delegated:abc:events")}, []),
    ],
)
def test_a_role_that_no_caller_can_have(options: dict[str, Any], doubts: list[str]) -> None:
    roles = {"read_roles": ("public",), "write_roles": ("cap:write:events",)}
    config = CollectionsConfig(collections=(collection(**{**roles, **options}),))
    expected = [f'collection "events": {doubt}' for doubt in doubts]
    assert warnings_about(config, has_role_functions=False) == expected
    assert warnings_about(config) == [], "a program may give any role"


def test_what_is_likely_meant() -> None:
    fine = collection(
        storage_path="events/{identity}", read_roles=("public", "cap:read:events", "cap:read:*"), write_roles=("self",)
    )
    assert doubts_of(fine) == []


def test_a_collection_that_no_path_leads_to_is_told() -> None:
    (doubt,) = doubts_of(collection(), collection(name="same", storage_path="events/{date}"))
    assert doubt.startswith('collection "same": its paths are also paths of "events", which comes first')
    keyring = collection(name="keyring", storage_path="events/_keyring", append_only=None)
    (doubt,) = doubts_of(collection(), keyring)
    assert doubt.startswith('collection "keyring": its paths are also paths of "events", which comes first')
    assert doubts_of(keyring, collection()) == []


@pytest.mark.parametrize(
    ("path", "other", "told"),
    [
        ("rooms/{room}", "rooms/{id}", False),
        ("rooms/{room}", "{kind}/{id}", True),
        ("rooms/{room}", "rooms/lobby", True),
        ("users/{identity}/log", "users/{id}/log", True),
        ("users/{identity}/log", "users/{identity}/log", False),
        ("rooms/{room}", "rooms/{room}/log", False),
        ("rooms/{room}", "users/{room}", False),
    ],
)
def test_collections_of_two_namespaces_that_have_some_documents_in_common_are_told(
    path: str, other: str, told: bool
) -> None:
    first, second = collection(storage_path=path), collection(name="other", storage_path=other)
    expected = [
        'namespace "team": collection "other": some of its documents are also those of "events" without a namespace: '
        "each collection gives access to them with its own roles"
    ]
    assert doubts_of(first, namespaces={"team": (second,)}) == (expected if told else [])
    (doubt,) = doubts_of(namespaces={"a": (first,), "b": (second,)}) if told else [""]
    assert not told or 'also those of "events" of namespace "a"' in doubt
    silent = collection(name="other", storage_path=other, append_only=AppendOnly(persist=False))
    assert not [doubt for doubt in doubts_of(first, namespaces={"team": (silent,)}) if "also those" in doubt]


def test_members_of_a_bundle_have_one_path() -> None:
    first = collection(name="a", storage_path="u/{id}", append_only=None, bundle="b")
    second = collection(name="c", storage_path="v/{id}", append_only=None, bundle="b")
    same = collection(name="c", storage_path="u/{id}", append_only=None, bundle="b", write_roles=("cap:write:c",))
    assert errors_of(first, same) == ()
    assert not [doubt for doubt in doubts_of(first, same) if "comes first" in doubt]
    (error,) = errors_of(first, second)
    assert error == 'collection "c": the storage_path of all members of the bundle "b" must be the same'
    (error,) = errors_of(collection(name="x{", storage_path="u/{id}", append_only=None, bundle="b"))
    assert error.startswith("collection \"x{\": storage_path: 'x{' is not a placeholder")
