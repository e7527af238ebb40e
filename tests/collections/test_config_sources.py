from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

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
from strandline.collections.config_sources import ConfigReader
from strandline.collections.errors import BadCollections

MINIMAL = {"name": "events", "storage_path": "events/{day}", "read_roles": ["user"], "append_only": True}


def from_tables(*collections: dict[str, Any], **tables: Any) -> CollectionsConfig:
    reader = ConfigReader()
    reader.read_tables({"collection": list(collections), **tables})
    return reader.config()


def from_file(directory: Path, document: object) -> CollectionsConfig:
    path = directory / "starfish.json"
    path.write_bytes(document if isinstance(document, bytes) else msgspec.json.encode(document))
    reader = ConfigReader()
    reader.read_file(path)
    return reader.config()


def errors_of(*collections: dict[str, Any], **tables: Any) -> list[str]:
    with pytest.raises(BadCollections) as caught:
        from_tables(*collections, **tables)
    return [error.removeprefix('collections.collection: collection "events": ') for error in caught.value.errors]


EVERYTHING = Collection(
    name="events",
    storage_path="events/{day}",
    read_roles=("admin",),
    write_roles=("user", "cap:write:events"),
    encryption="delegated",
    max_body_bytes=1000,
    rate_limit=CollectionRateLimit(
        window_ms=1,
        max_requests=2,
        bucket="ip",
        push=RateRule(window_ms=3, max_requests=4, bucket="identity+ip"),
        pull=RateRule(identity=RateDimension(window_ms=5), ip=RateDimension(max_requests=6)),
        list=RateRule(),
    ),
    cache_duration_ms=7,
    object_schema={"type": "object", "properties": {"snake_case": {"type": "null"}, "camelCase": {}}},
    allowed_mime_types=("application/json", "text/plain"),
    push_only=True,
    append_only=AppendOnly(
        field="entries", max_items=8, chunk_size=9, require_author_signature=False, allow_full=False, max_pull_limit=10,
        max_checkpoint_age_ms=11,
    ),
    ttl_ms=12,
    field_permissions={"some_field": FieldPermission(read_roles=("a",), write_roles=("b",))},
    listable=True,
    root_only=True,
    queue=QueueEvents(
        topic="told", include_params=True, include_body=True, include_identity=True, subject_param="day",
        subject_id_pattern="^x$",
    ),
    durability="disk",
    strict=False,
)  # fmt: skip


def snake(value: Any) -> Any:
    """A collection as it is written in TOML."""
    if isinstance(value, msgspec.Struct):
        given = {name: snake(one) for name, one in msgspec.structs.asdict(value).items()}
        return {name: one for name, one in given.items() if one is not None}
    if isinstance(value, dict):
        return {name: snake(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def test_every_option_is_read_in_both_spellings() -> None:
    assert from_tables(snake(EVERYTHING)).collections == (EVERYTHING,)
    assert from_tables(msgspec.to_builtins(EVERYTHING)).collections == (EVERYTHING,)


def test_searchable_fields_are_read() -> None:
    searched = replace(EVERYTHING, encryption="none", search=("title", "text"))
    assert from_tables(snake(searched)).collections == (searched,)
    wrong = {**snake(searched), "search": "title"}
    assert errors_of(wrong) == ["search is 'title'; expected a list of fields"]


def test_every_option_of_a_declared_collection_is_kept() -> None:
    reader = ConfigReader()
    reader.read_declared([EVERYTHING])
    assert reader.config().collections == (EVERYTHING,)


def test_everything_differs_from_its_default() -> None:
    """So that the tests above are about all options."""
    plain = Collection(name="", storage_path="")
    same = {name for name in Collection.__struct_fields__ if getattr(plain, name) == getattr(EVERYTHING, name)}
    assert same == {"pull_only", "bundle", "max_versions", "retain_until_in_lake", "search"}, (
        "which do not go together with others"
    )


def test_what_is_left_out_has_a_default() -> None:
    (read,) = from_tables(MINIMAL).collections
    assert read == Collection(
        name="events", storage_path="events/{day}", read_roles=("user",), append_only=AppendOnly()
    )


@pytest.mark.parametrize(("given", "read"), [(True, AppendOnly()), (False, None), (None, None), ({}, AppendOnly())])
def test_append_only_may_be_yes_or_no(given: object, read: AppendOnly | None) -> None:
    assert from_tables({**MINIMAL, "append_only": given}).collections[0].append_only == read


def test_the_strategy_of_appending_is_by_timestamp() -> None:
    assert from_tables({**MINIMAL, "append_only": {"type": "by_timestamp"}}).collections[0].append_only == AppendOnly()
    (error,) = errors_of({**MINIMAL, "append_only": {"type": "by_magic"}})
    assert error == "append_only: type is 'by_magic'; expected by_timestamp"


def test_limits_and_queues_may_be_yes_or_no() -> None:
    everywhere = {"window_ms": 1, "max_requests": 1}
    (read,) = from_tables({**MINIMAL, "rate_limit": True, "queue": True}, rate_limit=everywhere).collections
    assert (read.rate_limit, read.queue) == (CollectionRateLimit(), QueueEvents())
    (read,) = from_tables({**MINIMAL, "rate_limit": False, "queue": False}).collections
    assert (read.rate_limit, read.queue) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "collections.collection: collection \"\": name is ''; expected text"),
        ({"read_roles": "public"}, "read_roles is 'public'; expected a list of roles"),
        ({"read_roles": [1]}, "read_roles is [1]; expected a list of roles"),
        ({"encryption": "rot13"}, "encryption is 'rot13'; expected none or delegated"),
        ({"max_body_bytes": 0}, "max_body_bytes is 0; expected a whole number, 1 or more"),
        ({"max_body_bytes": "1"}, "max_body_bytes is '1'; expected a whole number, 1 or more"),
        ({"ttl_ms": True}, "ttl_ms is True; expected a whole number, 1 or more"),
        ({"listable": 1}, "listable is 1; expected true or false"),
        ({"append_only": {"maxItems": -1}}, "append_only: max_items is -1; expected a whole number, 1 or more"),
        ({"append_only": "yes"}, "append_only is 'yes'; expected a table"),
        ({"append_only": {"max_itmes": 1}}, "append_only: unknown key 'max_itmes'; did you mean 'max_items'?"),
        ({"rate_limit": {"bucket": "moon"}}, "rate_limit: bucket is 'moon'; expected identity, ip or identity+ip"),
        (
            {"field_permissions": {"a": {"readRoles": 1}}},
            "field_permissions.a: read_roles is 1; expected a list of roles",
        ),
        ({"object_schema": []}, "object_schema is []; expected a JSON Schema"),
        ({"durability": "stone"}, "durability is 'stone'; expected ephemeral, memory, disk, fsync or replicated"),
        ({"readRoles": ["a"]}, "read_roles is given twice, in both spellings"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"restrictions": [{"mode": "deny"}]}, "restrictions by identity are not supported"),
    ],
)
def test_a_value_that_cannot_be_is_told_where_it_is(options: dict[str, Any], message: str) -> None:
    error = errors_of({**MINIMAL, **options})[0]
    assert error.startswith(message)


def test_errors_of_form_and_of_sense_are_told_together() -> None:
    errors = errors_of({"name": "events", "colour": 1}, {**MINIMAL, "name": "b", "pull_only": True}, "nonsense")  # type: ignore[arg-type]
    assert errors == [
        "unknown key 'colour'",
        "storage_path is missing",
        "collections.collection: collection 3 is 'nonsense'; expected a table",
        'collection "b": append_only cannot be combined with pull_only: no element could be appended',
    ]


def test_options_without_an_effect_are_told() -> None:
    config = from_tables({**MINIMAL, "keyring_path": "k", "forceFullFetch": True, "restrictions": []})
    assert "keyring_path has no effect: a keyring is a regular document" in config.warnings[0]
    assert "forceFullFetch has no effect" in config.warnings[1]
    assert len(config.warnings) == 2


def test_namespaces_are_tables() -> None:
    config = from_tables(namespace={"acme": {"collection": [MINIMAL]}, "globex": {"collection": [MINIMAL]}})
    assert list(config.namespaces) == ["acme", "globex"]
    assert errors_of(namespace={"acme": {"collection": [MINIMAL], "restrictions": [1], "colour": 1}}) == [
        "collections.namespace.acme: restrictions by identity are not supported; assign roles with a role enricher "
        "instead",
        "collections.namespace.acme: unknown key 'colour'; "
        "declare collections as [[collections.namespace.acme.collection]]",
    ]
    assert errors_of(namespace={"acme": 1})[0] == "collections.namespace.acme is 1; expected a table"


# --- files of Starfish -------------------------------------------------------------------------------------------

PUBLISHED = {
    "version": 1,
    "collections": [
        {
            "name": "events",
            "storagePath": "events/{date}",
            "readRoles": ["cap:read:events"],
            "writeRoles": ["cap:write:events"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": {"type": "by_timestamp", "chunkSize": 10000},
            "rateLimit": True,
            "bundle": None,
        },
        {
            "name": "settings",
            "storagePath": "users/{identity}/settings",
            "readRoles": ["self"],
            "writeRoles": ["self"],
            "encryption": "delegated",
            "maxBodyBytes": 65536,
        },
    ],
    "namespaces": {"acme": {"collections": [{**MINIMAL, "encryption": "none"}]}},
    "rateLimit": {"windowMs": 60000, "maxRequests": 100},
}


def test_a_published_configuration_is_read(tmp_path: Path) -> None:
    config = from_file(tmp_path, PUBLISHED)
    assert [one.name for one in config.collections] == ["events", "settings"]
    assert config.collections[0].append_only == AppendOnly(chunk_size=10000)
    assert list(config.namespaces) == ["acme"]
    assert config.rate_limit == RateLimit(window_ms=60000, max_requests=100)
    (chunks,) = config.warnings
    assert chunks.startswith('collection "events": append_only.chunk_size has no effect')


def test_what_is_unknown_in_a_published_configuration_is_a_warning(tmp_path: Path) -> None:
    namespaces = {"acme": {"collections": [MINIMAL], "colections": []}}
    document = {**PUBLISHED, "later": 1, "collections": [{**MINIMAL, "remote": {}}], "namespaces": namespaces}
    config = from_file(tmp_path, document)
    path = tmp_path / "starfish.json"
    assert config.warnings == (
        f"{path}: later (line 1) has no effect",
        f'{path}: collections: collection "events" (line 1): remote (line 1) has no effect',
        f"{path}: namespace acme: colections (line 1) has no effect; did you mean 'collections'?",
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"nonsense", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b'{"version": 1, "collections": [NaN]}', "is not JSON: NaN is not a number"),
        (b"[]", "is []; expected a table"),
        ({"collections": []}, "version is None; expected 1"),
        ({"version": 2, "collections": []}, "version (line 1) is 2; expected 1"),
        ({"version": 1, "collections": {}}, "collections is {}; expected a list of collections"),
        ({"version": 1, "restrictions": [{"mode": "deny", "identities": ["x"]}]}, "restrictions by identity"),
        ({"version": 1, "namespaces": {"a": {"collections": [MINIMAL], "restrictions": [1]}}}, "restrictions by"),
        ({"version": 1, "rateLimit": {"windowMs": 1}}, "maxRequests is missing"),
        (
            {"version": 1, "collections": [{**MINIMAL, "queueOnly": True}]},
            "queueOnly (line 1) was replaced by appendOnly (by_timestamp) with persist false",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, document: object, message: str) -> None:
    with pytest.raises(BadCollections) as caught:
        from_file(tmp_path, document)
    assert message in caught.value.errors[0]
    assert "starfish.json" in caught.value.errors[0]


YAML = """\
version: 1
defaults: &signed
  readRoles: [cap:read:events]
  encryption: none
  maxBodyBytes: 65536
collections:
  - <<: *signed
    name: events
    storagePath: events/{date}
    writeRoles: [public]
    appendOnly: true
    fieldPermissions:
      verdict: {readRoles: [admin]}
  - name: day
    storagePath: 2024-01-15
    readRoles: [public]
    encryption: none
    maxBodyBytes: 1
    appendOnly: {type: by_timestamp, maxItems: 5, requireAuthorSignature: no}
namespaces:
  acme:
    collections:
      - {name: a, storagePath: a, readRoles: [public], appendOnly: {}}
rateLimit: {windowMs: 60000, maxRequests: 100}
"""


def from_text(directory: Path, name: str, text: str) -> CollectionsConfig:
    path = directory / name
    path.write_text(text)
    reader = ConfigReader()
    reader.read_file(path)
    return reader.config()


@pytest.mark.parametrize("name", ["starfish.yaml", "starfish.yml", "STARFISH.YAML"])
def test_a_configuration_may_be_yaml(tmp_path: Path, name: str) -> None:
    config = from_text(tmp_path, name, YAML)
    events, day = config.collections
    assert events.append_only == AppendOnly()
    assert (events.read_roles, events.storage_path) == (("cap:read:events",), "events/{date}")
    assert events.field_permissions == {"verdict": FieldPermission(read_roles=("admin",))}
    assert (day.storage_path, day.append_only) == (
        "2024-01-15",
        AppendOnly(max_items=5, require_author_signature=False),
    )
    assert [one.name for one in config.namespaces["acme"]] == ["a"]
    assert config.rate_limit == RateLimit(window_ms=60000, max_requests=100)
    assert config.warnings[0] == f"{tmp_path / name}: defaults (line 2) has no effect"


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    """Every option, in the form of JSON, is YAML as well."""
    document = msgspec.json.encode({**PUBLISHED, "collections": [msgspec.to_builtins(EVERYTHING)]}).decode()
    assert from_text(tmp_path, "a.yaml", document) == from_text(tmp_path, "a.json", document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\ncollections: [\n", "starfish.yaml, line 3, column 1: it is not YAML: "),
        ("version: 1\n\tcollections: []\n", "starfish.yaml, line 2, column 1: it is not YAML: "),
        ("version: 1\n---\nversion: 1\n", "starfish.yaml, line 2, column 1: it is not YAML: "),
        ("version: !!python/object:os.system x\n", "starfish.yaml, line 1, column 10: it is not YAML: "),
        ("version: 1\ncollections: []\nversion: 1\n", "starfish.yaml, line 3: the key 'version' is already on line 1"),
        ("version: 1\nnamespaces:\n  yes: {}\n", "starfish.yaml, line 3: the key 'yes' is not text; put it in quotes"),
        ("version: &a\n  b: *a\n", "starfish.yaml, line 1: the value contains an alias to itself"),
        ("a: \x00", "starfish.yaml is not YAML: "),
        ("", "starfish.yaml is empty"),
        ("# nothing\n", "starfish.yaml is empty"),
        ("version: 1\nttl: 0x_\n", "starfish.yaml, line 2, column 6: it is not YAML: '0x_' is not of the type int"),
        ("version: !!bool maybe\n", "line 1, column 10: it is not YAML: 'maybe' is not of the type bool"),
        ("version: !!set {a}\n", "starfish.yaml, line 1: the type set is not supported"),
        ("version: !!binary aGk=\n", "starfish.yaml, line 1: the type binary is not supported"),
        ("version: !!timestamp 2026-11-15\n", "starfish.yaml, line 1: the type timestamp is not supported"),
        ("version: 2\n", "starfish.yaml: version (line 1) is 2; expected 1"),
        ("version: 1\ncollections:\n  - name: a\n    storagePath: a\n    readRoles: public\n",
         'collection "a" (line 3): readRoles (line 5) is \'public\'; expected a list of roles'),
        ("version: 1\ncollections:\n  - storagePath: a\n", "collection 1 (line 3): name is missing"),
        ("version: 1\ncollections:\n  - name: a\n    storagePath: a\n    appendOnly:\n      type: x\n",
         'collection "a" (line 3): appendOnly (line 5): type (line 6) is \'x\'; expected by_timestamp'),
    ],
)  # fmt: skip
def test_an_error_in_yaml_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadCollections) as caught:
        from_text(tmp_path, "starfish.yaml", text)
    assert message in caught.value.errors[0]


def test_a_misspelt_option_is_told_with_the_error_that_it_causes(tmp_path: Path) -> None:
    text = "version: 1\nnamespaces:\n  acme:\n    collections:\n      - {name: a, storagePath: a, readRole: [public]}\n"
    with pytest.raises(BadCollections) as caught:
        from_text(tmp_path, "starfish.yaml", text)
    place = f'{tmp_path}/starfish.yaml: namespace acme: collections: collection "a" (line 5)'
    empty = f'{place}: readRoles is empty: all pulls would be refused; use ["public"] to allow every caller'
    assert caught.value.errors == (empty,)
    unknown = f"{place}: readRole (line 5) has no effect; did you mean 'readRoles'?"
    assert str(caught.value) == f"the collections cannot be served:\n  - {empty}\n  - warning: {unknown}"
    with pytest.raises(BadCollections, match=r"\(line 5\): read_roles is empty"):
        from_text(tmp_path, "starfish.yaml", text.replace("storagePath", "storage_path"))


@pytest.mark.parametrize("merge", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_do_not_multiply_values_without_a_bound(tmp_path: Path, merge: str) -> None:
    """The file has a few hundred bytes and refers to ten to the power of twelve values."""
    lines = ["- &a0 {k: v}", *(f"- &a{n + 1} {merge.format(', '.join([f'*a{n}'] * 10))}" for n in range(12))]
    with pytest.raises(BadCollections, match="more than 100000 values, counting those of aliases each time"):
        from_text(tmp_path, "starfish.yaml", "\n".join(lines))


@pytest.mark.parametrize(
    ("before", "repeated", "times", "message"),
    [
        ("", "ä", 600_000, "starfish.yaml has more than 1048576 bytes"),
        ("version: ", "9", 6000, "starfish.yaml, line 1, column 10: it is not YAML: '9999"),
        ("version: 0x", "f", 6000, "starfish.yaml, line 1, column 10: it is not YAML: the integer '0xfff"),
        ("version: ", "x", 6000, "starfish.yaml: version (line 1) is 'xxx"),
        ("- ", "a: {", 10_000, "starfish.yaml is nested too deeply"),
    ],
)
def test_an_error_is_short_however_large_the_file_is(
    tmp_path: Path, before: str, repeated: str, times: int, message: str
) -> None:
    with pytest.raises(BadCollections) as caught:
        from_text(tmp_path, "starfish.yaml", before + repeated * times)
    assert message in caught.value.errors[0]
    assert len(caught.value.errors[0]) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  "version": 1,\n}', "starfish.json, line 3, column 1: it is not JSON: "),
        ('{\n\t"version": 1,\n\t"version": 1\n}', "starfish.json, line 3: the key 'version' is already on line 2"),
        ('{\n\t"version": 1,\n\t"collections": [\n\t\t{"name": "a", "storagePath": "a",\n\t\t"readRoles": 7}]}',
         'starfish.json: collections: collection "a" (line 4): readRoles (line 5) is 7; expected a list of roles'),
    ],
)  # fmt: skip
def test_an_error_in_json_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadCollections) as caught:
        from_text(tmp_path, "starfish.json", text)
    assert message in caught.value.errors[0]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    reader = ConfigReader()
    reader.read_file(tmp_path / "absent.json")
    with pytest.raises(BadCollections, match=r"cannot read .*absent.json: No such file"):
        reader.config()


def test_sources_are_added_up(tmp_path: Path) -> None:
    reader = ConfigReader()
    reader.read_tables({"collection": [{**MINIMAL, "name": "first", "storage_path": "first"}]})
    path = tmp_path / "starfish.json"
    path.write_bytes(msgspec.json.encode(PUBLISHED))
    reader.read_file(path)
    reader.read_declared([Collection(name="last", storage_path="last", read_roles=("a",), append_only=AppendOnly())])
    reader.read_declared([EVERYTHING], "globex")
    config = reader.config()
    assert [one.name for one in config.collections] == ["first", "events", "settings", "last"]
    assert list(config.namespaces) == ["acme", "globex"]


def test_two_sources_must_not_contradict_each_other(tmp_path: Path) -> None:
    reader = ConfigReader()
    reader.read_tables({"collection": [MINIMAL], "rate_limit": {"window_ms": 1, "max_requests": 1}})
    path = tmp_path / "starfish.json"
    path.write_bytes(msgspec.json.encode(PUBLISHED))
    reader.read_file(path)
    with pytest.raises(BadCollections) as caught:
        reader.config()
    assert caught.value.errors == (
        f"{path}: rateLimit: another limit for all collections is declared with different values",
        f'{path}: collections: collection "events" (line 1): another collection has the same name',
    )
