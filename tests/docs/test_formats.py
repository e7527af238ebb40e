"""The page on file formats: what it says about the bytes of a replica is what the code writes."""

from __future__ import annotations

import re

import xxhash
from support.document_tables import ROOT

from strandline.engine.replica import chunk as chunks
from strandline.engine.replica.chunk import Content, End, JournalPart, Piece, State, Term, encode_chunk

PAGE = (ROOT / "docs/reference/formats.md").read_text()
CHUNKS = PAGE[PAGE.index("### Chunks") : PAGE.index("### leader")]
CONTENTS: dict[str, Content] = {
    "TERM": Term("a:1", 5),
    "JOURNAL": JournalPart([Piece(1, 0, b"abc")], 7),
    "STATE": State(b"{}", [], 3),
    "END": End(),
}


def test_the_header_of_a_chunk_has_the_fields_of_the_page() -> None:
    fields = [
        (int(at), int(size), what) for at, size, what in re.findall(r"^\| (\d+) \| (\d+) \| (.*) \|$", CHUNKS, re.M)
    ]
    ends = [0, *(at + size for at, size, _ in fields)]
    assert [at for at, _, _ in fields] == ends[:-1]
    assert ends[-1] == chunks.HEADER_BYTES
    assert f"The header has {ends[-1]} bytes" in CHUNKS
    raw = encode_chunk(0x41, 3, b"w" * 16, End(), began=0x39, state=0x40)
    found = {what: raw[at : at + size] for at, size, what in fields}
    numbers = {
        what.split(":")[0].split(";")[0].split(",")[0]: int.from_bytes(part, "little") for what, part in found.items()
    }
    assert raw.startswith(b"STRANDRC")
    assert (numbers["version"], numbers["kind"], numbers["number of the chunk"], numbers["term"]) == (1, 4, 0x41, 3)
    assert numbers["number of the chunk with which the term began"] == 0x39
    assert numbers["number of the last STATE"] == 0x40
    assert numbers["length of the body"] == len(raw) - ends[-1]
    (last,) = [at for at, _, what in fields if "XXH3" in what]
    assert numbers[f"XXH3-64 of the previous {last} bytes and the body"] == xxhash.xxh3_64_intdigest(
        raw[:last] + raw[ends[-1] :]
    )


def test_the_kinds_of_chunks_and_their_members_are_those_of_the_page() -> None:
    kinds = {kind.name: kind.value for kind in chunks.ChunkKind}
    (shown,) = re.findall(r"kind: (.*) \|", CHUNKS)
    assert {name: int(value) for value, name in (pair.split() for pair in shown.split(", "))} == kinds
    members = {
        kind: re.findall(r"\w+", names) for kind, names in re.findall(r"^\| ([A-Z]+) \| `\{(.*?)\}`", CHUNKS, re.M)
    }
    assert members == {kind: list(content.__struct_fields__) for kind, content in CONTENTS.items()}
    assert set(members) == set(kinds)
