from __future__ import annotations

import pytest

from strandline.pipeline.declared.graph import Graph, downstream, in_order
from strandline.pipeline.declared.project import BadProject

READS = {"clean": ["orders"], "revenue": ["clean"], "best": ["revenue", "visits"], "copy": ["clean"]}


def followed(reads: dict[str, list[str]], *names: str) -> Graph:
    graph = Graph()

    def visit(name: str) -> None:
        def follow() -> None:
            for each in reads[name]:
                graph.reads(each)
                if each in reads:
                    visit(each)

        graph.visit(name, follow)

    for name in names or reads:
        visit(name)
    return graph


def test_a_table_comes_after_those_that_it_reads() -> None:
    graph = followed(READS, "best", "copy", "clean")
    assert in_order(graph.edges, ["best", "copy", "clean", "revenue"]) == ["clean", "revenue", "best", "copy"]
    assert in_order(graph.edges, ["best", "clean"]) == ["clean", "best"]
    assert graph.edges["best"] == {"revenue", "visits"}


@pytest.mark.parametrize(
    ("reads", "circle"),
    [({"a": ["a"]}, "a -> a"), ({"a": ["b"], "b": ["c"], "c": ["b"]}, "b -> c -> b")],
)
def test_a_circle_is_an_error(reads: dict[str, list[str]], circle: str) -> None:
    with pytest.raises(BadProject, match=f"in a circle: {circle}"):
        followed(reads)


def test_what_reads_a_table_is_found_through_others() -> None:
    graph = followed(READS)
    assert downstream(graph.edges, "clean") == ["copy", "revenue", "best"]
    assert downstream(graph.edges, "best") == []
    graph.forget("revenue")
    graph.visit("revenue", lambda: graph.reads("copy"))
    assert in_order(graph.edges, READS) == ["clean", "copy", "revenue", "best"]
