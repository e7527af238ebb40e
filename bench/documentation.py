"""The results in the documentation: a page of ratios with pictures, and pages with every figure of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import plots
from bench.measure import Row
from bench.plots_bars import advantage, times
from bench.report import Report, cells, columns, groups, number, summary

#: The file of each group, next to the page of ratios in a directory of the same name.
PAGES = {
    "append": "engine",
    "read": "engine",
    "change": "engine",
    "recovery": "engine",
    "seal": "engine",
    "history": "engine",
    "logs": "engine",
    "start": "start",
    "topics": "topics",
    "topics-delivery": "topics",
    "streams": "streams",
    "collections": "collections",
    "tables": "tables",
    "aggregates": "search",
    "client": "client",
    "search": "search",
    "search-first": "search",
    "pipeline": "pipeline",
    "typed-tables": "pipeline",
    "declared": "pipeline",
    "replica": "replica",
    "peers": "peers",
}
BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"
#: The prefix of the name of each group.
HEADING = "### "


def write(page: Path, report: Report) -> None:
    """Write the figures of the measured groups to their pages. If peers were measured, write their ratios and pictures
    to ``page``. Other groups, and the text outside the markers, stay as they are."""
    for group, rows in groups(report):
        _replace_section(page.with_suffix("") / f"{PAGES[group]}.md", group, _figures(group, rows, report))
        pictures = plots.write(group, rows, page)
        if pictures:
            _replace(page, "\n".join(_ratios(rows, report, pictures)) + "\n")


def _figures(group: str, rows: Sequence[Row], report: Report) -> Iterator[str]:
    yield group
    yield ""
    yield summary(report)
    yield ""
    yield from _table(columns(rows), map(cells, rows))


def _ratios(rows: Sequence[Row], report: Report, pictures: Sequence[str]) -> Iterator[str]:
    yield summary(report)
    yield ""
    for peers, work in _families(rows):
        yield from _table(("work", "Strandline", *peers), (_ratio_cells(found, peers) for found in work))
    for picture in pictures:
        yield picture
        yield ""


def _families(rows: Sequence[Row]) -> Iterator[tuple[list[str], list[Mapping[str, Row]]]]:
    """The work that the same peers do. Where a history grows, only the longest is shown."""
    longest = {chart: max(row.at or 0 for row in rows if row.chart == chart) for chart in {row.chart for row in rows}}
    work: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.peer is not None and (row.at is None or row.at == longest[row.chart]):
            work.setdefault(row.name, {})[row.peer_is.partition(",")[0]] = row
    families: list[tuple[list[str], list[Mapping[str, Row]]]] = []
    for found in work.values():
        for peers, members in families:
            if not found.keys().isdisjoint(peers):
                peers += found.keys() - set(peers)
                members.append(found)
                break
        else:
            families.append((list(found), [found]))
    yield from families


def _ratio_cells(found: Mapping[str, Row], peers: Sequence[str]) -> tuple[str, ...]:
    ours = next(iter(found.values()))
    ratios = (times(advantage(found[peer]).median) if peer in found else "" for peer in peers)
    return (ours.name, number(ours.result.median, ours.unit), *ratios)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for line in lines:
        yield "| " + " | ".join(line) + " |"
    yield ""


def _replace_section(path: Path, group: str, lines: Iterable[str]) -> None:
    sections = {section.partition("\n")[0]: section for section in _between(path).split(HEADING)[1:]}
    sections[group] = "\n".join(lines) + "\n"
    _replace(path, "".join(HEADING + section for section in sections.values()))


def _between(path: Path) -> str:
    _, begin, rest = path.read_text().partition(BEGIN)
    between, end, _ = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} does not have the markers {BEGIN} and {END}")
    return between


def _replace(path: Path, content: str) -> None:
    old = _between(path)
    path.write_text(path.read_text().replace(BEGIN + old + END, f"{BEGIN}\n\n{content}{END}"))
