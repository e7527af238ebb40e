from __future__ import annotations

from support.command_line import Cli


def test_a_router_is_made_listed_shown_and_deleted(cli: Cli, name: str) -> None:
    router, copy = f"{name}-r", f"{name}-copy"
    cli.lines("log", "append", name, "0")
    made = cli.lines("router", "create", router, "--from", name, "--to", copy, "--filter", "ann*")
    assert made == [f"created router {router}: {name} → {copy}"]
    cli.lines("log", "append", name, "1", "-k", "ann:7")
    assert [row["data"] for row in cli.rows("log", "tail", copy)] == [1]
    listed = cli.words("router", "ls", "--from", name)
    assert listed == [["router", "from", "to", "filter"], [router, name, copy, "ann*"]]
    shown = cli.json("router", "show", router)
    (row,) = cli.json("router", "ls", "--to", copy)["routers"]
    assert row == {member: value for member, value in shown.items() if member != "lag"}
    (row,) = cli.json("log", "show", name)["routers"]
    assert (row["filter"], row["forwarded_total"]) == (["tag", "Glob", "ann*"], 1)
    assert (shown["filter"], shown["forwarded"], shown["lag"]) == ("ann*", 1, 0)
    assert ["filter", "ann*"] in cli.words("router", "show", router)
    assert cli.lines("router", "delete", router) == [f"deleted router {router}"]
    assert (
        cli.fails(3, "router", "delete", router)
        == f"strandline: router '{router}' not found; list the names with `strandline router ls`"
    )
    assert f"router '{router}' not found" in cli.fails(3, "router", "show", router)


def test_a_router_that_is_there_is_left_alone(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "0")
    cli.json("router", "create", name, "--from", name, "--to", f"{name}-b", "--exactly-once")
    assert f"router '{name}' already exists" in cli.fails(
        6, "router", "create", name, "--from", name, "--to", f"{name}-c"
    )
    assert cli.json("router", "show", name)["to"] == f"{name}-b"


def test_circles_are_refused(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "0")
    cli.lines("router", "create", f"{name}-1", "--from", name, "--to", f"{name}-b")
    cli.fails(6, "router", "create", f"{name}-2", "--from", f"{name}-b", "--to", name)
    cli.lines("router", "create", f"{name}-2", "--from", f"{name}-b", "--to", name, "--allow-cycle")


def test_the_former_name_of_the_filter_still_works(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "0")
    assert cli.json("router", "create", name, "--from", name, "--to", f"{name}-b", "--keys", "ann")["filter"] == "ann"
