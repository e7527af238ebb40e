from __future__ import annotations

from pathlib import Path

import pytest

from strandline.pipeline.declared.project import BadProject, load_project
from strandline.pipeline.declared.registry import Declarations, load_declarations


def declared(tmp_path: Path, code: str) -> Declarations:
    (tmp_path / "tables").mkdir()
    (tmp_path / "pipeline.toml").write_text("")
    (tmp_path / "tables" / "shop.py").write_text("from pyspark import pipelines as dp\n" + code)
    return load_declarations(load_project(tmp_path), None, None)


def test_decorators_declare_outputs_and_flows(tmp_path: Path) -> None:
    found = declared(
        tmp_path,
        """
@dp.table(comment="all orders", table_properties={"strandline.log": "copies"}, partition_cols=["day"])
def orders(): raise NotImplementedError

@dp.materialized_view(name="revenue")
def compute(): raise NotImplementedError

@dp.temporary_view
def large(): raise NotImplementedError

dp.create_sink("out", "strandline", {"log": "large"})

@dp.append_flow(target="out", name="copy")
def flow(): raise NotImplementedError

dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(target="customers", source="orders", keys=["id"], sequence_by="seq")
""",
    )
    kinds = {name: output.kind for name, output in found.outputs.items()}
    assert kinds == {
        "orders": "streaming_table",
        "revenue": "materialized_view",
        "large": "temporary_view",
        "out": "sink",
        "customers": "streaming_table",
    }
    orders = found.outputs["orders"]
    assert (orders.comment, orders.property("strandline.log"), orders.partition_by) == (
        "all orders",
        "copies",
        ("day",),
    )
    assert orders.where == "tables/shop.py:3"
    assert [flow.name for flow in found.flows["out"]] == ["copy"]
    assert found.flows["customers"][0].cdc is not None


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@dp.table\ndef a(): ...\n@dp.table(name='A')\ndef b(): ...", r"shop.py:4: 'A' is already declared at .*:2"),
        ("@dp.table(name='a-b')\ndef a(): ...", "invalid name 'a-b'"),
        ("dp.create_streaming_table('orders')", "no flow writes to 'orders'"),
        (
            "dp.create_streaming_table('orders')\n@dp.append_flow(target='order')\ndef f(): ...",
            r"writes to 'order', which is not declared; did you mean 'orders'\?",
        ),
        (
            "@dp.table(table_properties={'strandline.lgo': 'x'})\ndef a(): ...",
            r"unknown property 'strandline.lgo'; did you mean 'strandline.log'\?",
        ),
        ("@dp.table(format='parquet')\ndef a(): ...", "unknown format 'parquet'"),
        (
            "@dp.materialized_view\ndef a(): ...\n@dp.append_flow(target='a')\ndef f(): ...",
            "'a' is a view, which has one query",
        ),
        (
            "dp.create_streaming_table('a')\n@dp.append_flow(target='a')\ndef f(): ...\n"
            "dp.create_auto_cdc_flow(target='a', source='b', keys=['k'], sequence_by='s')",
            "an AUTO CDC flow must be the only flow",
        ),
        ("import nothing_of_this_name", "shop.py: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ],
)
def test_declarations_that_are_not_valid_are_refused(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(BadProject, match=message):
        declared(tmp_path, code)


def test_a_project_without_files_says_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text("")
    with pytest.raises(BadProject, match=r"no files match libraries = \['tables/\*\*'\]"):
        load_declarations(load_project(tmp_path), None, None)
