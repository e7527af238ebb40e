"""Columns as arrays of a file, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, NumberColumn, TextColumn
from strandline.query.postings import (
    NOWHERE,
    PostedKeywordColumn,
    PostedTextColumn,
    narrow,
    post_keywords,
    post_texts,
    sort_words,
)


class StoredColumn(Struct, frozen=True):
    """``kind`` is "number", "bool", "keyword", "text" or "histogram"; ``parts`` are the arrays there are of it."""

    name: str
    kind: str
    parts: tuple[str, ...]


def store_column(name: str, column: AnyColumn) -> tuple[StoredColumn, dict[str, Any]]:
    """What it is, and its arrays by their names."""
    kind, parts = _parts(column)
    if column.rows is not None:
        parts["rows"] = column.rows
    return StoredColumn(name, kind, tuple(parts)), {array_name(name, part): array for part, array in parts.items()}


def array_name(column: str, part: str) -> str:
    return f"column:{column}:{part}"


def _parts(column: AnyColumn) -> tuple[str, dict[str, Any]]:
    if isinstance(column, NumberColumn):
        return _number_parts(column)
    if isinstance(column, TextColumn):
        text = post_texts(column)
        return "text", {
            "tokens": text.tokens,
            "words": text.words,
            "bounds": text.bounds,
            "values": text.values,
            "counts": text.counts,
            "starts": text.starts,
        }
    if isinstance(column, HistogramColumn):
        codes, words = sort_words(column.codes, column.words)
        return "histogram", {"codes": narrow(codes, len(words)), "words": words, "weights": column.weights}
    keyword = post_keywords(column)
    parts = {"codes": keyword.codes, "words": keyword.words}
    if len(keyword.starts):
        parts |= {"order": keyword.order, "starts": keyword.starts}
    return "keyword", parts


def _number_parts(column: NumberColumn) -> tuple[str, dict[str, Any]]:
    values = column.values
    if values.dtype == np.bool_:
        return "bool", {"values": values.view(np.uint8)}
    if not column.is_general:
        return "number", {"values": values}
    listed = values.tolist()
    wide = [place for place, value in enumerate(listed) if not -(1 << 63) <= value < 1 << 63]
    for place in wide:
        listed[place] = 0
    texts = pa.array([str(values[place]) for place in wide], pa.string())
    return "number", {"values": np.array(listed, np.int64), "wide": np.array(wide, np.int64), "wide_texts": texts}


def load_column(stored: StoredColumn, array: Callable[[str], Any]) -> AnyColumn:
    """The column again; ``array`` gives arrays by their names, numbers as numpy's and texts as Arrow's."""
    parts = {part: array(array_name(stored.name, part)) for part in stored.parts}
    rows = parts.get("rows")
    match stored.kind:
        case "number":
            return NumberColumn(_numbers(parts), rows)
        case "bool":
            return NumberColumn(parts["values"].view(np.bool_), rows)
        case "keyword":
            order, starts = parts.get("order", NOWHERE), parts.get("starts", NOWHERE)
            return PostedKeywordColumn(parts["codes"], parts["words"], rows, order, starts)
        case "histogram":
            return HistogramColumn(parts["codes"], parts["words"], parts["weights"], rows)
        case "text":
            return PostedTextColumn(
                parts["tokens"],
                parts["words"],
                parts["bounds"],
                rows,
                parts["values"],
                parts["counts"],
                parts["starts"],
            )
        case kind:
            raise ValueError(f"there are no columns of the kind {kind!r}")


def _numbers(parts: dict[str, Any]) -> Any:
    values = parts["values"]
    if "wide" not in parts:
        return values
    general = values.astype(np.object_)
    for place, text in zip(parts["wide"].tolist(), parts["wide_texts"].to_pylist(), strict=True):
        general[place] = int(text)
    return general


def plain_column(column: AnyColumn) -> AnyColumn:
    """The same values without what is known about where words are, and with codes of the usual size."""
    if isinstance(column, TextColumn):
        return TextColumn(column.tokens.astype(np.int32), column.words, column.bounds, column.rows)
    if isinstance(column, HistogramColumn):
        return HistogramColumn(column.codes.astype(np.int32), column.words, column.weights, column.rows)
    if isinstance(column, KeywordColumn):
        return KeywordColumn(column.codes.astype(np.int32), column.words, column.rows)
    return column
