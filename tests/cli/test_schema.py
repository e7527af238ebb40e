from __future__ import annotations

import json
from pathlib import Path

from support.command_line import Cli

SCHEMA = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
SEARCH = {"fields": {"x": {"kind": "integer", "column": True, "bindings": [{"version": 1, "jsonPointer": "/x"}]}}}


def test_a_schema_is_installed_shown_and_enforced(cli: Cli, name: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    cli.lines("log", "create", name)
    assert "has no schema; propose one with" in cli.fails(3, "schema", "get", name)
    assert cli.lines("schema", "set", name, file) == [f"log {name} has version 1 of its schema"]
    assert json.loads("\n".join(cli.lines("schema", "get", name))) == {"schema": SCHEMA}
    cli.fails(2, "log", "append", name, '{"x":"text"}')
    cli.lines("log", "append", name, '{"x":1}')
    # The next version, with a lens, from standard input.
    second = {**SCHEMA, "properties": {**SCHEMA["properties"], "y": {"type": "string"}}, "required": ["x", "y"]}  # type: ignore[dict-item]
    ops = [{"op": "add", "path": "/y", "schema": {"type": "string"}, "default": "none"}]
    lens = {"apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2, "ops": ops}
    registry = cli.json("schema", "set", name, "-", input=json.dumps({"schema": second, "lens": lens}))
    assert registry["currentVersion"] == 2
    assert json.loads("\n".join(cli.lines("schema", "get", name))) == {"schema": second}
    assert json.loads("\n".join(cli.lines("schema", "get", name, "--version", "1"))) == {"schema": SCHEMA}
    assert "known versions: 1, 2" in cli.fails(3, "schema", "get", name, "--version", "3")
    assert list(cli.json("schema", "get", name)["schemas"]) == ["1", "2"]


def test_bad_schemas_are_refused(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.lines("log", "append", name, '{"x":1}')
    file = tmp_path / "schema.json"
    for text, message in (("no JSON", "not valid JSON"), ("[]", "expected a JSON object")):
        file.write_text(text)
        assert message in cli.fails(2, "schema", "set", name, file)
    assert "cannot read" in cli.fails(2, "schema", "set", name, tmp_path / "absent")
    file.write_text(json.dumps(SCHEMA))
    assert "a first schema needs an empty log" in cli.fails(6, "schema", "set", name, file)
    assert "not found" in cli.fails(3, "schema", "set", f"{name}-absent", file)
    assert "not found" in cli.fails(3, "schema", "get", f"{name}-absent")


def test_an_inferred_schema_fits_a_log_with_the_same_records(cli: Cli, name: str, tmp_path: Path) -> None:
    records = ['{"page":"/","ms":12,"tags":["a"]}', '{"page":"/pay","ms":2.5}', '{"page":"/old","ms":null}']
    cli.lines("log", "append", name, *records)
    document = cli.json("schema", "infer", name)
    assert document["records"] == 3
    assert document["schema"]["required"] == ["page", "ms"]
    assert document["schema"]["properties"]["ms"] == {"type": ["number", "null"]}
    assert set(document["search"]["fields"]) == {"page", "ms", "tags"}
    file = tmp_path / "inferred.json"
    file.write_text("\n".join(cli.lines("schema", "infer", name)))
    cli.lines("log", "create", f"{name}-new", "--schema", file)
    cli.lines("log", "append", f"{name}-new", *records)
    cli.fails(2, "log", "append", f"{name}-new", '{"page":1}')
    assert cli.json("search", f"{name}-new", "ms:>10")["hits"][0]["data"]["page"] == "/"
    assert cli.json("schema", "infer", name, "--limit", "1")["schema"]["properties"]["ms"] == {"type": "null"}
    cli.lines("log", "create", f"{name}-empty")
    assert "has no records" in cli.fails(6, "schema", "infer", f"{name}-empty")
    cli.lines("log", "create", f"{name}-text", "--content-type", "text/plain")
    assert "does not hold JSON" in cli.fails(6, "schema", "infer", f"{name}-text")


def test_a_dry_run_shows_what_would_change_and_installs_nothing(cli: Cli, name: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"schema": SCHEMA, "search": SEARCH}))
    cli.lines("log", "append", name, '{"x":1}', '{"x":"text"}', '{"y":2}')
    result = cli("schema", "set", name, file, "--dry-run")
    assert result.exit_code == 6
    assert f"the server would refuse this: log {name!r} has records and no schema" in " ".join(result.stderr.split())
    lines = result.stdout.splitlines()
    assert lines[:3] == ["--- installed", "+++ proposed", f"@@ -0,0 +1,{len(lines) - 10} @@"]
    assert [" ".join(line.split()) for line in lines[-7:]] == [
        "examined the last 3 records: 2 would be rejected",
        "seq reason",
        '3 "x" is a required property',
        '2 /x value is not of type "integer"',
        "field kind records values unfit examples",
        'x integer 1 1 1 1, "text"',
        "dry run: nothing was installed",
    ]  # fmt: skip
    assert "has no schema" in cli.fails(3, "schema", "get", name)


def test_a_dry_run_of_fields(cli: Cli, name: str, tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    file.write_text(json.dumps(SEARCH))
    cli.lines("log", "append", name, '{"x":1}', '{"x":"text"}', '{"x":3}')
    found = cli.json("index", "set", name, file, "--dry-run", "--limit", "2")
    assert (found["log"], found["records"], found["first_seq"], found["rejected"]) == (name, 2, 2, None)
    assert found["fields"][0]["examples"] == [{"seq": 3, "value": 3}]
    cli.lines("index", "set", name, file)
    lines = cli.lines("index", "set", name, file, "--dry-run")
    assert lines[:2] == ["no difference to the installed configuration", "examined the last 3 records"]
    file.write_text('{"fields":{"x":{"kind":"word","bindings":[]}}}')
    assert "search.fields.x.kind must be keyword" in cli.fails(2, "index", "set", name, file, "--dry-run")
    cli.fails(3, "index", "set", f"{name}-absent", file, "--dry-run")
