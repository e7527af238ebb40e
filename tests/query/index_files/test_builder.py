"""Records are extracted in large batches, in whatever pieces they arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searched_log import CONFIG, NOW, encode

from strandline.query.extraction import Extractor
from strandline.query.index_files.builder import Builder, Made, Origin

PAYLOADS = [
    b"not json" if number % 11 == 5 else encode({"at": NOW + number, "service": f"s{number % 3}", "took": number / 4})
    for number in range(60)
]
#: Not consecutive: some records are gone.
SEQS = [number + 1 + number // 7 for number in range(60)]


def made_of(sizes: list[int], payloads: list[bytes] = PAYLOADS, seqs: list[int] = SEQS) -> Made:
    origin = Origin(directory="d", log="log", epoch=3, first=1, last=seqs[-1], versions=((1, 1), (20, 2)))
    builder, at = Builder(origin, CONFIG), 0
    for size in [*sizes, len(payloads)]:
        builder.add(seqs[at : at + size], payloads[at : at + size])
        at += size
    return builder.finish()


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 20), max_size=6))
def test_the_file_does_not_depend_on_the_pieces(sizes: list[int]) -> None:
    assert made_of(sizes).content.to_pybytes() == made_of([]).content.to_pybytes()


def test_small_pieces_are_extracted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    extract = Extractor.extract

    def counted(self: Extractor, data: list[bytes], version: int) -> Any:
        batches.append(len(data))
        return extract(self, data, version)

    monkeypatch.setattr(Extractor, "extract", counted)
    payloads = [encode({"at": NOW + number}) for number in range(40_000)]
    made_of([1000] * 40, payloads, list(range(1, 40_001)))
    # 19 records of the first version, and 21 of the second.
    assert len(batches) <= 4
    assert sum(batches) == 40_000
