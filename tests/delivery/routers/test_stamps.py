import json
from pathlib import Path

import pytest
from support.manual_loop import house

from strandline.delivery.routers.router import stamp_meta

STAMP = b'{"source_seq":7}'


def test_a_copy_says_which_record_of_which_log_it_is_a_copy_of(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.write("a", "before")
        home.route("a", "b", stamped=True)
        home.write("a", "1")
        home.turn()
        (record,) = home.log("b").read()
        epoch = home.log("a").epoch
        assert json.loads(record.meta or b"") == {
            "_topics_router": {
                "idempotency_key": f"router:a->b:{epoch}:{epoch}:2",
                "router": "a->b",
                "source_topic": "a",
                "source_topic_id": epoch,
                "source_epoch": epoch,
                "source_seq": 2,
            }
        }


def test_the_stamp_is_added_to_an_object() -> None:
    assert json.loads(stamp_meta(b'{"m":{"n":[1]}}', STAMP)) == {"m": {"n": [1]}, "_topics_router": {"source_seq": 7}}
    assert json.loads(stamp_meta(b"{}", STAMP)) == {"_topics_router": {"source_seq": 7}}


@pytest.mark.parametrize("meta", ["1", '"text"', "[1,2]", "true"])
def test_the_stamp_is_put_beside_what_is_no_object(meta: str) -> None:
    assert json.loads(stamp_meta(meta.encode(), STAMP)) == {
        "_topics_original_meta": json.loads(meta),
        "_topics_router": {"source_seq": 7},
    }


def test_an_object_that_is_nested_too_deeply_to_be_read_stops_no_router() -> None:
    meta = b'{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"
    expected = b'{"_topics_original_meta":' + meta + b',"_topics_router":{"source_seq":7}}'
    assert stamp_meta(meta, STAMP) == expected


def test_an_object_that_is_full_is_wrapped_too() -> None:
    almost, full = ({f"k{number}": number for number in range(size)} for size in (63, 64))
    assert json.loads(stamp_meta(json.dumps(almost).encode(), STAMP)) == {**almost, "_topics_router": {"source_seq": 7}}
    assert json.loads(stamp_meta(json.dumps(full).encode(), STAMP)) == {
        "_topics_original_meta": full,
        "_topics_router": {"source_seq": 7},
    }


def test_the_stamp_of_a_router_further_up_is_replaced() -> None:
    full = {f"k{number}": number for number in range(63)} | {"_topics_router": {"source_seq": 1}}
    assert json.loads(stamp_meta(json.dumps(full).encode(), STAMP)) == {**full, "_topics_router": {"source_seq": 7}}


def test_names_are_escaped(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route('quo"te', "b", name='na"me', stamped=True)
        home.write('quo"te', "1")
        home.turn()
        (record,) = home.log("b").read()
        stamp = json.loads(record.meta or b"")["_topics_router"]
        assert (stamp["source_topic"], stamp["router"]) == ('quo"te', 'na"me')


def test_in_a_chain_the_last_router_is_named(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", stamped=True)
        home.route("b", "c", stamped=True)
        home.write("a", "1", meta=b'{"mine":1}')
        home.turn()
        (record,) = home.log("c").read()
        meta = json.loads(record.meta or b"")
        assert meta["mine"] == 1
        assert meta["_topics_router"]["router"] == "b->c"
