"""Types of tables: what they say of a schema, and that compilers accept every valid row and refuse invalid ones."""

from __future__ import annotations

import datetime
import enum
import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pydantic
import pytest
from support.document_tables import ROOT
from support.node_packages import Unavailable, require_packages

from strandline.tables import TableDeclaration, make_log
from strandline.tables.schemas import schema_of
from strandline.tables.types import python_types, typescript_types

#: Generous: the machine may be busy.
RUN_SECONDS = 240.0


class Mood(enum.Enum):
    CALM = "calm"
    WILD = "wild"


class Address(msgspec.Struct):
    """Where somebody lives."""

    street: Annotated[str, msgspec.Meta(description="The street, */ and the\nnumber.")]
    zip: str | None = None


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    age: int = 3


class Message(msgspec.Struct, forbid_unknown_fields=True):
    content: str
    role: Literal["user", "assistant"] = "user"
    mood: Mood = Mood.CALM
    where: Address | None = None
    pet: Cat | Dog | None = None
    at: datetime.datetime | None = None
    pair: tuple[int, str] = (1, "a")
    scores: dict[str, float] = {}
    extra: Any = None
    seen: int | msgspec.UnsetType = msgspec.UNSET
    replies: list[Message] = []


message = make_log("chat-message", parent="chat", schema=Message)


def declared(document: dict[str, Any], name: str = "thing") -> TableDeclaration:
    return make_log(name, parent="x", schema=document)


def block(text: str, start: str) -> str:
    """The text from there to the next empty line, on one line."""
    return " ".join(text[text.index(start) :].partition("\n\n")[0].split())


# --- what they say --------------------------------------------------------------------------------------------------


def test_what_is_read_has_the_defaults_and_what_is_written_need_not() -> None:
    text = typescript_types([message])
    read, written = (
        block(text, "export interface ChatMessagePayload "),
        block(text, "export interface ChatMessageInput "),
    )
    assert 'readonly role: "assistant" | "user";' in read
    assert 'role?: "assistant" | "user";' in written
    assert "readonly where: ChatMessagePayloadAddress | null;" in read
    assert "where?: ChatMessageInputAddress | null;" in written
    # A member that is never set is left out of what is stored.
    assert "readonly seen?: number;" in read
    assert '/** @default "calm" */ mood?: ChatMessageInputMood;' in written
    assert "export type ChatMessageRow = ChatMessagePayload & RowFields;" in text
    assert '"chat-message": { payload: ChatMessagePayload; input: ChatMessageInput };' in text


def test_types_of_all_kinds_in_typescript() -> None:
    text = typescript_types([message])
    read = block(text, "export interface ChatMessagePayload ")
    assert "readonly at: string | null;" in read
    assert "readonly pair: readonly [number, string];" in read
    assert "readonly scores: { readonly [name: string]: number };" in read
    assert "readonly extra: unknown;" in read
    assert "readonly replies: readonly ChatMessagePayload[];" in read
    assert "readonly pet: ChatMessagePayloadCat | ChatMessagePayloadDog | null;" in read
    assert block(text, "export type ChatMessagePayloadMood") == 'export type ChatMessagePayloadMood = "calm" | "wild";'
    assert 'readonly type: "Dog"; readonly age: number;' in block(text, "export interface ChatMessagePayloadDog")
    assert "/** * The street, *\\/ and the * number. */ street: string;" in block(
        text, "export interface ChatMessageInputAddress"
    )
    assert "/** Where somebody lives. */" in text


def imported(folder: Path, tables: list[TableDeclaration]) -> ModuleType:
    """The generated Python types as a module."""
    path = folder / "generated_types.py"
    path.write_text(python_types(tables))
    spec = importlib.util.spec_from_file_location(folder.name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        # What types refer to is looked up when they are first used.
        for value in vars(module).values():
            if isinstance(value, type) and hasattr(value, "__total__"):
                msgspec.inspect.type_info(value)
        del sys.modules[folder.name]
    return module


def test_types_of_all_kinds_in_python(tmp_path: Path) -> None:
    types = imported(tmp_path, [message])
    payload = {"content": "hi", "replies": [{"content": "ho", "pet": {"type": "Dog"}}]}
    stored = json.loads(json.dumps(message.schema.validate(payload)))
    # The client decodes payloads with msgspec.
    assert msgspec.convert(stored, types.ChatMessagePayload) == stored
    assert msgspec.convert({"content": "hi"}, types.ChatMessageInput) == {"content": "hi"}
    for kind, wrong in ((types.ChatMessagePayload, {"content": "hi"}), (types.ChatMessageInput, {"mood": "calm"})):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, kind)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"content": "hi", "mood": "sad"}, types.ChatMessageInput)


@dataclass
class Plain:
    text: str
    count: int = 1


class Model(pydantic.BaseModel):
    text: str
    count: int = 1


class Brief(msgspec.Struct, omit_defaults=True):
    text: str
    count: int = 1


class Around(msgspec.Struct):
    brief: list[Brief] = []
    count: int = 1


DOCUMENT = {
    "properties": {"text": {"type": "string"}, "count": {"type": "integer", "default": 1}},
    "required": ["text"],
}


@pytest.mark.parametrize(
    ("schema", "mark"), [(Plain, ""), (Model, ""), (Brief, "?"), (Around, "?"), (DOCUMENT, "?")], ids=str
)
def test_a_default_is_present_in_what_is_read_if_the_schema_fills_it_in(schema: Any, mark: str) -> None:
    read = block(typescript_types([make_log("thing", parent="x", schema=schema)]), "export interface ThingPayload ")
    assert f"readonly count{mark}: number;" in read
    payload = {} if schema is Around else {"text": "x"}
    assert ("count" in schema_of(schema).validate(payload)) >= (mark == "")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"type": "object"}, "export type ThingInput = { [name: string]: unknown };"),
        (True, "export type ThingInput = { [name: string]: unknown };"),
        ({"additionalProperties": {"type": "integer"}, "type": "object"}, "{ [name: string]: number };"),
        ({"type": "object", "additionalProperties": False}, "export interface ThingInput {}"),
        ({"properties": {"a-b": {}, "class": {"type": "null"}}}, '{ "a-b"?: unknown; class?: null; }'),
        ({"properties": {"a": True}, "additionalProperties": True}, "{ a?: unknown; [name: string]: unknown; }"),
        ({"properties": {"a": False}}, "{ a?: never; }"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "{ a?: string | null; }"),
        ({"properties": {"a": {"enum": [1, True, "x", None, [2]]}}}, '1 | true | "x" | null | (readonly unknown[])'),
        ({"properties": {"a": {"type": "string", "minLength": 2, "not": {"const": "no"}}}}, "{ a?: string; }"),
        (
            {"properties": {"a": {"prefixItems": [{"type": "string"}, {}], "type": "array", "minItems": 1}}},
            "{ a?: readonly [string, unknown?, ...unknown[]]; }",
        ),
        (
            {"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}, {"properties": {"b": {}}}]},
            "{ a?: 1; } & { b?: unknown; }",
        ),
        (
            {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/properties/b/oneOf/1"}, {"type": "null"}]},
             "b": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}}},
            "{ a?: ThingInputPart1 | null; b?: null | boolean; }",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_json_schemas(document: Any, expected: str) -> None:
    document = {} if document is True else document
    text = typescript_types([declared(document)])
    assert expected in " ".join(text.split())


def test_names_of_types_are_used_once() -> None:
    tables = [
        declared({"$defs": {"X": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/X"}}}, "a-b"),
        declared({"type": "object"}, "a_b"),
        declared({"type": "object"}, "aBInputX"),
    ]
    text = typescript_types(tables)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("export ")]
    assert len(set(names)) == len(names)
    assert {"ABRow", "AB2Row", "ABInputX", "ABInputXInput"} <= set(names)
    json.dumps(python_types(tables))


def test_a_definition_that_says_nothing() -> None:
    document = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert "export type ThingInputA = unknown;" in typescript_types([declared(document)])


# --- compilers ------------------------------------------------------------------------------------------------------


def tsc() -> Path:
    try:
        return require_packages(ROOT / "tests" / "browser") / ".bin" / "tsc"
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)


def compile_typescript(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.ts").write_text(text)
    command = [str(tsc()), "--strict", "--noEmit", "--target", "es2022", "--module", "es2022", "rows.ts"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS)


def check_python(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", "rows.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS)


class Chance:
    """Schemas at random, and values that they accept."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.parts: dict[str, Any] = {}
        self.values: dict[str, list[Any]] = {}

    def pair(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        """A schema, and a function that makes a value of it."""
        scalars = [self.scalar, self.choice, self.reference]
        return self.random.choice(
            scalars if depth == 0 else [*scalars, self.list, self.positions, self.object, self.any_of]
        )(depth)

    def scalar(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        values: dict[str, list[Any]] = {
            "string": ["", "text", "*/ \"quoted\" 'text'\n"],
            "integer": [0, -7, 2**40],
            "number": [0, 1.5],
            "boolean": [True, False],
            "null": [None],
        }
        kind = self.random.choice(list(values))
        return {"type": kind, "description": 'Some */ "words"\0\\'}, lambda: self.random.choice(values[kind])

    def choice(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        options = self.random.sample(["a", "b'\"", 1, True, None, 2.5], 2)
        return {"enum": options}, lambda: self.random.choice(options)

    def reference(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        name = self.random.choice(["One", "two-words", "3"])
        if name not in self.parts:
            self.parts[name] = {}
            schema, make = self.scalar(0) if depth == 0 else self.object(depth - 1)
            self.parts[name], self.values[name] = schema, [make() for _ in range(3)]
        values = self.values.get(name)
        # Inside its own definition, a part has no values yet: no value is given where it is optional.
        return {"$ref": f"#/$defs/{name}"}, lambda: self.random.choice(values) if values else None

    def list(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        schema, make = self.pair(depth - 1)
        return {"type": "array", "items": schema}, lambda: [make() for _ in range(self.random.randrange(3))]

    def positions(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        pairs = [self.pair(depth - 1) for _ in range(2)]
        document = {"type": "array", "prefixItems": [schema for schema, _ in pairs], "items": False, "minItems": 2}
        return document, lambda: [make() for _, make in pairs]

    def object(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        names = self.random.sample(["a", "b", "a-b", "class", "list", "__x"], self.random.randrange(1, 4))
        pairs = {name: self.pair(max(depth - 1, 0)) for name in names}
        required = [name for name in names if self.random.random() < 0.5]
        document: dict[str, Any] = {
            "type": "object",
            "properties": {name: schema for name, (schema, _) in pairs.items()},
            "required": required,
            "additionalProperties": self.random.choice([False, False, True]),
        }
        return document, lambda: {
            name: make() for name, (_, make) in pairs.items() if name in required or self.random.random() < 0.5
        }

    def any_of(self, depth: int) -> tuple[Any, Callable[[], Any]]:
        pairs = [self.pair(depth - 1) for _ in range(2)]
        return {"anyOf": [schema for schema, _ in pairs]}, lambda: self.random.choice(pairs)[1]()


def random_tables(count: int) -> Iterable[tuple[TableDeclaration, list[Any]]]:
    """Tables with random schemas, and payloads that their schemas accept."""
    for seed in range(count):
        chance = Chance(seed)
        document, make = chance.object(3)
        document["$defs"] = chance.parts
        accepts = jsonschema_rs.validator_for(document).is_valid
        payloads = [payload for payload in (make() for _ in range(6)) if accepts(payload)]
        yield declared(document, f"table{seed}"), payloads


def test_compilers_accept_every_valid_row(tmp_path: Path) -> None:
    pairs = list(random_tables(80))
    assert sum(len(payloads) for _, payloads in pairs) > 200
    tables = [table for table, _ in pairs]
    rows = [(f"Table{place}", payload) for place, (_, payloads) in enumerate(pairs) for payload in payloads]
    kinds = ("Input", "Payload")
    script = [
        f"export const row{place}{kind}: {name}{kind} = {json.dumps(payload)};"
        for place, (name, payload) in enumerate(rows)
        for kind in kinds
    ]
    done = compile_typescript(tmp_path, "\n".join([typescript_types(tables), *script]))
    assert done.returncode == 0, done.stdout[:3000]
    program = [
        f"row{place}{kind}: {name}{kind} = {payload!r}" for place, (name, payload) in enumerate(rows) for kind in kinds
    ]
    checked = check_python(tmp_path, "\n".join([python_types(tables), *program]))
    assert checked.returncode == 0, checked.stdout[:3000]
    types = imported(tmp_path, tables)
    for name, payload in rows:
        for kind in kinds:
            assert msgspec.convert(payload, getattr(types, name + kind)) == payload


CLIENT = """
from strandline.client import Client

messages = Client("http://127.0.0.1:4000").table("chat-message", ChatMessagePayload)
messages.append("lobby", ChatMessageInput(content="hi"))
messages.append_bulk("lobby", [ChatMessageInput(content="hi", mood="wild")])
found = messages.read("lobby:1")
role: str = "" if found is None else found.payload["role"]
"""


def test_the_client_takes_both_types(tmp_path: Path) -> None:
    checked = check_python(tmp_path, python_types([message]) + CLIENT)
    assert checked.returncode == 0, checked.stdout
    wrong = CLIENT.replace('["role"]', '["rôle"]').replace('mood="wild"', 'mood="sad"')
    checked = check_python(tmp_path, python_types([message]) + wrong)
    assert "Found 2 errors" in checked.stdout, checked.stdout


def test_compilers_refuse_what_is_wrong(tmp_path: Path) -> None:
    wrong = {
        "ChatMessageInput": [
            "{}",
            '{"content": 1}',
            '{"content": "x", "mood": "sad"}',
            '{"content": "x", "colour": 1}',
        ],
        "ChatMessagePayload": ['{"content": "x"}'],
    }
    values = [(kind, value) for kind, each in wrong.items() for value in each]
    lines = [f"const wrong{place}: {kind} = {value};" for place, (kind, value) in enumerate(values)]
    done = compile_typescript(tmp_path, "\n".join([typescript_types([message]), *lines]))
    assert done.stdout.count("error TS") == len(values), done.stdout
    lines = [f"wrong{place}: {kind} = {value}" for place, (kind, value) in enumerate(values)]
    checked = check_python(tmp_path, "\n".join([python_types([message]), *lines]))
    assert f"Found {len(values)} errors" in checked.stdout, checked.stdout
