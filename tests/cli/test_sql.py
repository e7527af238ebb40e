from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.command_line import Cli
from support.lake_copy import fill
from support.server_process import ServerProcess, StartServer

from strandline.engine import Batch, Engine
from strandline.engine.record import Config
from strandline.history.directory import DirectoryHistory
from strandline.lake.fence import belong
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.sql.logs import Logs
from strandline.tables import Table, Tables, make_log

Told = Callable[[str], list[Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def told(path: Path) -> Told:
    """Rows of a statement about a data directory, each as a list."""
    cli = Cli("http://127.0.0.1:1")
    return lambda statement: [list(row.values()) for row in cli.rows("sql", statement, "--data", path)]


def put(path: Path, log: str, *payloads: Any, key: str | None = None, **config: Any) -> None:
    with Engine.open(path, background=False) as engine:
        found = engine.find(log) or engine.create(log, Config(**config)).wait()
        found.append(Batch([json.dumps(one).encode() for one in payloads], keys=[key] * len(payloads))).wait()


def change(path: Path, log: str, act: Callable[[Any], Any]) -> None:
    with Engine.open(path, background=False) as engine:
        act(engine.log(log)).wait()


def to_lake(path: Path) -> None:
    """What a round of the pipeline would leave, with all erasures followed that there are."""
    history = DirectoryHistory(path)
    lake = Lake.at(path / "lake")
    belong(lake, history.directory)
    erasures = {info.name: info.head for info in history.logs()}.get("__erasures__", 0)
    fill(lake, history, erasures=erasures)
    history.close()


def test_without_a_pipeline_everything_comes_from_the_log(path: Path, told: Told) -> None:
    put(path, "orders", {"item": "book", "cents": 1250}, {"item": "pen", "cents": 180}, key="ann")
    statement = "select seq, key, data->>'item' as item, (data->>'cents')::int as cents from orders order by seq"
    assert told(statement) == [[1, "ann", "book", 1250], [2, "ann", "pen", 180]]


def test_what_is_in_the_lake_and_what_is_newer_make_one_table(path: Path, told: Told) -> None:
    put(path, "orders", *range(5))
    to_lake(path)
    put(path, "orders", *range(5, 8))
    assert told("select count(*), count(distinct seq), min(data::int), max(data::int) from orders") == [[8, 8, 0, 7]]
    assert told("select a.seq from orders a join orders b using (seq) order by seq") == [[seq] for seq in range(1, 9)]


def test_the_lake_is_really_read(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2, 3, cap_records=2)
    assert told("select count(*) from orders") == [[2]]
    to_lake(path)
    put(path, "orders", 4)
    # A cap has taken 2 from the log since, and the lake has kept it.
    assert told("select seq from orders order by seq") == [[2], [3], [4]]


def test_what_was_deleted_is_gone_before_the_lake_has_followed(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2, key="ann")
    put(path, "orders", 3, key="bob")
    put(path, "others", 1, 2)
    to_lake(path)
    put(path, "orders", 4, key="ann")
    change(path, "orders", lambda log: log.delete(key="ann"))
    assert told("select seq from orders") == [[3]]
    assert told("select count(*) from others") == [[2]]


def test_what_was_restored_or_amended_is_as_the_log_has_it(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2, 3, 4)
    change(path, "orders", lambda log: log.hide(seqs=[2]))
    to_lake(path)
    assert told("select seq from orders order by seq") == [[1], [3], [4]]
    change(path, "orders", lambda log: log.restore(seqs=[2]))
    change(path, "orders", lambda log: log.amend(3, b"33"))
    assert told("select seq, data::int from orders order by seq") == [[1, 1], [2, 2], [3, 33], [4, 4]]
    change(path, "orders", lambda log: log.hide(seqs=[4]))
    assert told("select seq from orders order by seq") == [[1], [2], [3]]


def test_a_log_that_was_made_again_has_nothing_of_the_one_before(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2)
    to_lake(path)
    with Engine.open(path, background=False) as engine:
        engine.log("orders").drop().wait()
    put(path, "orders", 7)
    assert told("select seq, data::int from orders") == [[1, 7]]


def test_a_fork_has_what_it_shares_and_its_own(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2, 3)
    with Engine.open(path, background=False) as engine:
        engine.fork("what-if", engine.log("orders"), 2).wait()
    put(path, "what-if", 30)
    to_lake(path)
    put(path, "what-if", 40)
    put(path, "orders", 4)
    assert told('select seq, data::int from "what-if" order by seq') == [[1, 1], [2, 2], [3, 30], [4, 40]]
    change(path, "orders", lambda log: log.delete(seqs=[1]))
    assert told('select seq from "what-if" order by seq') == [[2], [3], [4]]


def test_only_logs_that_are_named_are_read(path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("orders", "shop/orders", "key", "paid", 'it\'s "odd"'):
        put(path, name, 1)
    read: list[str] = []
    monkeypatch.setattr(Logs, "add", lambda logs, name, add=Logs.add: read.append(name) or add(logs, name))
    for statement, names in {
        "select seq, data->>'item', key as paid from orders": ["orders"],
        'with o as (select * from "shop/orders") select count(*) from o join paid using (seq)': ["shop/orders", "paid"],
        "select 'orders' as text, 1 as orders": [],
        'from "it\'s ""odd"""': ['it\'s "odd"'],
        "pivot orders on key using count(*)": ["orders"],
    }.items():
        read.clear()
        assert (len(told(statement)), read) == (1, names)


def test_metas_and_payloads_that_are_no_json_do_no_harm(path: Path, told: Told) -> None:
    with Engine.open(path, background=False) as engine:
        log = engine.create("odd").wait()
        log.append(Batch([b"no json", b"\xff", b'{"a":1.10}'], metas=[b'{"m":1}', None, None])).wait()
    assert told("select data, meta->>'m' from odd order by seq") == [["no json", "1"], [None, None], [{"a": 1.1}, None]]


def test_a_lake_of_another_directory_is_refused(path: Path, told: Told, tmp_path: Path) -> None:
    put(path, "orders", 1)
    to_lake(path)
    put(tmp_path / "other", "orders", 1)
    cli = Cli("http://127.0.0.1:1")
    said = cli.fails(6, "sql", "from orders", "--data", tmp_path / "other", "--lake", path / "lake")
    assert "of the data directory" in said
    assert "no lake found at" in cli.fails(3, "sql", "from orders", "--data", path, "--lake", tmp_path / "none")


def test_files_that_are_erased_while_they_are_read_are_not_missed(path: Path, told: Told) -> None:
    put(path, "orders", 1, 2)
    to_lake(path)
    table = records(Lake.at(path / "lake"))
    (file,) = [each for each in table.files() if each.rows]
    table.snapshot().commit(remove=[file], progress={"erasures": 0})
    (path / "lake/records" / file.path).unlink()
    assert told("select count(*) from orders") == [[0]]


# --- by url, and what comes out ------------------------------------------------------------------------------------


def test_a_server_is_asked_by_its_url(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    cli = Cli(server.url)
    cli.lines("log", "append", "shop:orders", '{"item":"book"}', '{"item":"pen"}', "-k", "ann")
    assert cli.rows("sql", "select count(*) as n from \"shop:orders\" where data->>'item' = 'pen'") == [{"n": 1}]
    to_lake(server.data)
    cli.lines("log", "append", "shop:orders", '{"item":"cup"}')
    assert cli.json("log", "delete", "shop:orders", "--before", 2, "--yes")["deleted"] == 1
    rows = cli.rows("sql", "select seq, data->>'item' as item from \"shop:orders\" order by seq")
    assert rows == [{"seq": 2, "item": "pen"}, {"seq": 3, "item": "cup"}]


def test_a_key_that_sees_little_reads_no_lake(start_server: StartServer) -> None:
    server = start_server(keys="all,shop:rw:shop")
    cli = Cli(server.url)
    cli.lines("log", "append", "shop:orders", "1", "--api-key", "all")
    cli.lines("log", "append", "secret", "1", "--api-key", "all")
    to_lake(server.data)
    assert cli.rows("sql", 'select count(*) as n from "shop:orders"', "--api-key", "shop") == [{"n": 1}]
    said = cli.fails(5, "sql", 'from "shop:orders"', "--api-key", "shop", "--lake", server.data / "lake")
    assert "cannot read a lake" in said
    cli.fails(5, "sql", "from secret", "--api-key", "shop")
    cli.fails(5, "sql", "from secret", "--api-key", "wrong")


def test_rows_come_as_a_table_as_json_as_csv_and_as_parquet(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.lines("log", "append", name, '{"a":"x,y"}', '{"a":null}')
    statement = f"select seq, data->>'a' as a, data from \"{name}\" order by seq"
    assert cli.lines("sql", statement) == ["seq  a    data", '  1  x,y  {"a":"x,y"}', '  2       {"a":null}']
    assert cli.rows("sql", statement)[1] == {"seq": 2, "a": None, "data": {"a": None}}
    assert list(csv.reader(cli.lines("sql", statement, "--csv")))[1] == ["1", "x,y", '{"a":"x,y"}']
    assert cli.lines("sql", statement, "--parquet", tmp_path / "rows.parquet")[0].startswith("wrote 2 rows to ")
    assert pq.read_table(tmp_path / "rows.parquet").column("data").to_pylist() == ['{"a":"x,y"}', '{"a":null}']
    assert "only one of --json, --csv" in cli.fails(2, "sql", statement, "--csv", "--json")


def test_a_long_table_is_cut_and_says_so(cli: Cli) -> None:
    *_, last = cli.lines("sql", "select * from range(1001)")
    assert last == "1,000 of 1,001 rows; print all of them with --json, --csv or --parquet"
    assert len(cli.rows("sql", "select * from range(1001)")) == 1001


def test_statements_that_are_wrong_are_told(cli: Cli, name: str, cli_server: ServerProcess) -> None:
    assert "log 'no_such_log' not found" in cli.fails(3, "sql", "select * from no_such_log")
    assert "Parser Error" in cli.fails(2, "sql", "selec 1")
    cli.lines("log", "append", name, "1")
    assert "nothing_like_it" in cli.fails(2, "sql", f'select nothing_like_it from "{name}"')
    assert "expected one SQL statement, got 2" in cli.fails(2, "sql", "select 1; select 2")
    cli.fails(2, "sql", " ; ")
    assert cli.lines("sql", "-", input="select 7 as n") == ["n", "7"]
    cli.lines("log", "append", name.upper(), "1")
    assert "differ only in case" in cli.fails(2, "sql", f'select a.seq from "{name}" a, "{name.upper()}" b')


# --- tables and collections -------------------------------------------------------------------------------------------

NOTE = make_log("note", parent="desk", schema={"type": "object"}, soft_delete=True)


@contextmanager
def notes(path: Path) -> Iterator[Table]:
    with Engine.open(path, background=False) as engine:
        yield Tables(engine, [NOTE])["note"]


def test_a_table_is_queried_by_its_name(path: Path, told: Told) -> None:
    with notes(path) as table:
        table.append("p", {"text": "red lamp", "cents": 5}, user="ada", idempotency_key="k").wait()
        table.append("p", {"text": "old lamp", "cents": 7}, user="bob").wait()
        table.append("q", {"text": "it's 1", "cents": 2}).wait()
        table.append("q", {"text": "secret"}).wait()
        edited = table.update("p:2", {"text": "blue lamp"}).wait()
        table.rm("q:2").wait()
    expected = [["p:1", "p", 1, "ada", "k", "red lamp", 5], ["p:2", "p", 2, "bob", None, "blue lamp", 7]]
    expected.append(["q:1", "q", 1, None, None, "it's 1", 2])
    columns = 'id, parent, seq, "userId", "idempotencyKey", text, cents'
    statement = f"select {columns} from note order by id"
    assert told(statement) == expected
    times = 'epoch_ms("updatedAt") - epoch_ms("createdAt")'
    assert told(f"select {times} from note order by id") == [[0], [edited.updated_at - edited.created_at], [0]]
    assert told("select payload from note where id = 'p:2'") == [[{"text": "blue lamp", "cents": 7}]]
    assert told("select parent, sum(cents - 6)::int from note group by all order by all") == [["p", 0], ["q", -4]]
    to_lake(path)
    assert told(statement) == expected
    with notes(path) as table:
        table.restore("q:2").wait()
        table.update("q:1", {"text": "edited"}).wait()
        table.rm("p:1").wait()
        table.append("r", {"text": "new"}).wait()
    assert told("select id, text from note order by id") == [
        ["p:2", "blue lamp"], ["q:1", "edited"], ["q:2", "secret"], ["r:1", "new"],
    ]  # fmt: skip


def test_the_changes_of_a_table_are_logs_and_not_a_table(path: Path, cli: Cli, told: Told) -> None:
    with notes(path) as table:
        table.append("p", {"text": "red lamp"}).wait()
        table.update("p:1", {"text": "blue lamp"}).wait()
    assert told("""select data ->> 'op' from "note~changes/p" """) == [["update"]]
    assert "log 'note~changes' not found" in cli.fails(3, "sql", 'from "note~changes"', "--data", path)


def test_a_row_that_was_edited_with_a_later_schema_has_only_its_fields(path: Path, told: Told) -> None:
    text, mood = {"text": {"type": "string"}}, {"mood": {"type": "string", "default": "calm"}}
    with Engine.open(path, background=False) as engine:
        for properties in (text, text | mood):
            schema = {"type": "object", "properties": properties}
            table = Tables(engine, [make_log("note", parent="desk", schema=schema)])["note"]
            table.append("p", {"text": "red lamp"}).wait()
        table.update("p:1", {"text": "blue lamp"}).wait()
    assert told("select payload from note where id = 'p:1'") == [[{"text": "blue lamp", "mood": "calm"}]]


def test_fields_of_all_kinds_are_columns(path: Path, told: Told) -> None:
    with notes(path) as table:
        table.append("p", {"a b/c~d'e\"f": 1, "list": [1], "mixed": 1, "Text": "x", "text": "y", "payload": 3}).wait()
        table.append("p", {"list": None, "mixed": "one", "ok": True, "part": 0.5}).wait()
    (described,) = told("select list([column_name, column_type]) from (describe note)")[0]
    types = dict(described)
    assert types["a b/c~d'e\"f"] == "BIGINT"
    assert {name: types[name] for name in ("list", "mixed", "ok", "part", "payload")} == {
        "list": "JSON", "mixed": "JSON", "ok": "BOOLEAN", "part": "DOUBLE", "payload": "JSON",
    }  # fmt: skip
    assert told("select Text, payload ->> 'text', payload -> 'payload' from note where seq = 1") == [["x", "y", 3]]
    assert told('select list, mixed, ok, part, "a b/c~d\'e""f" from note order by seq') == [
        [[1], 1, None, None, 1],
        [None, "one", True, 0.5, None],
    ]


def test_a_table_without_visible_rows_has_its_own_columns(path: Path, told: Told) -> None:
    with notes(path) as table:
        table.append("p", {"text": "a"}).wait()
        table.purge_by_parent("p", hard=True).wait()
    assert told("select id, payload from note") == []


def test_a_collection_is_queried_by_its_name(path: Path, told: Told) -> None:
    with Engine.open(path, background=False) as engine:
        for document in ("blog/ada/1", "blog/bob/1"):
            log = engine.create(document, notes={"collection": "posts"}).wait()
            proof = json.dumps({"authorPubkey": document[5:8], "authorSignature": "s"}).encode()
            log.append(Batch([b'{"title": "one"}', b'{"title": "two", "stars": 3}'], metas=[proof, None])).wait()
    statement = 'select document, seq, "authorPubkey", title, stars from posts order by all'
    expected = [
        ["blog/ada/1", 1, "ada", "one", None], ["blog/ada/1", 2, None, "two", 3],
        ["blog/bob/1", 1, "bob", "one", None], ["blog/bob/1", 2, None, "two", 3],
    ]  # fmt: skip
    assert told(statement) == expected
    to_lake(path)
    assert told(statement) == expected
    assert told("select data from posts where seq = 2 and document = 'blog/ada/1'") == [[{"title": "two", "stars": 3}]]


def test_a_regular_document_has_its_last_version(path: Path, told: Told) -> None:
    with Engine.open(path, background=False) as engine:
        for number in (1, 2):
            log = engine.create(f"page/{number}", notes={"collection": "page", "versions": True}).wait()
            log.append(Batch([b'{"title": "old"}', b'{"title": "new %d"}' % number])).wait()
    statement = "select document, seq, title from page order by document"
    expected = [["page/1", 2, "new 1"], ["page/2", 2, "new 2"]]
    assert told(statement) == expected
    to_lake(path)
    assert told(statement) == expected


def test_a_log_comes_before_a_table_of_the_same_name(path: Path, told: Told) -> None:
    with notes(path) as table:
        table.append("p", {"text": "row"}).wait()
    put(path, "note", {"text": "record"})
    assert told("select data ->> 'text' from note") == [["record"]]
    assert told("""select data ->> 'text' from "note/p" """) == [["row"]]


def test_tables_are_listed(path: Path, told: Told) -> None:
    put(path, "orders", 1)
    put(path, "a log", 2)
    with notes(path) as table:
        table.append("p", {"text": "a"}).wait()
        table.update("p:1", {"text": "b"}).wait()
    expected = [["a log", "log"], ["note", "table"], ["orders", "log"]]
    assert told("show tables") == expected
    to_lake(path)
    assert told("show tables") == expected
    assert told(" SHOW  Tables ; ") == told("show all tables")
    assert [row[0] for row in told("describe orders")] == ["seq", "ts", "key", "node", "meta", "data"]
