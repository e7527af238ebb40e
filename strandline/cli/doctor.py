"""``strandline doctor``: finds what keeps a server, this machine or a data directory from working as expected."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.filesize import decimal

from strandline import __version__
from strandline.cli.connection import connect
from strandline.cli.contexts import contexts_path, load_contexts
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.options import ApiKey, AsJson, Url
from strandline.cli.output import counted, print_json, print_line
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.server_state import Health, health_of, metrics_of, show_lag
from strandline.cli.times import show_age
from strandline.client.errors import Forbidden, NotAuthenticated, StrandlineError
from strandline.extras import install, is_installed

if TYPE_CHECKING:
    from strandline.client import Client

Result = Literal["ok", "warn", "fail"]

#: A clock that is off by this much makes times in the console and `--since` wrong, and signed requests fail.
CLOCK_WARN_MS, CLOCK_FAIL_MS = 2_000, 60_000
#: A journal that is this full is about to slow writes down.
JOURNAL_WARN = 0.8
#: A follower looks for new records ten times a second.
FOLLOWER_WARN_MS = 10_000
#: A replica that lacks something for this long has a problem: chunks take milliseconds.
REPLICA_WARN_MS = 30_000
#: A server has a file per connection, journal file and segment.
FILES = 4096
#: A disk with less free space than this is full soon.
FREE_WARN, FREE_FAIL = 5 << 30, 256 << 20
#: File systems that lose data on a restart, and those whose locks and flushes may not work.
VOLATILE, REMOTE = frozenset({"tmpfs", "ramfs"}), frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"})
#: What the extras are for, and their packages. `spark_check` looks for Spark.
EXTRAS = {
    "server": ("serve, verify, import, export and others", ("pyarrow", "uvloop")),
    "sql": ("SQL here and in the console of a server", ("duckdb",)),
    "lake": ("SQL and exports from a lake", ("deltalake",)),
}


class Check(msgspec.Struct):
    """The result of one check, and what to do if it is not ok."""

    check: str
    result: Result
    detail: str
    advice: str = ""


def doctor_command(
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Check this data directory too.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Check a server, this machine and a data directory, and say what to do.

    Each check ends with ok, warn or fail. The command fails with exit code 1 if one fails. With --data, it is only a
    warning if no server answers.

    Example:
      strandline doctor
      strandline doctor --data data
    """
    checks = [
        *server_checks(url, api_key, "fail" if data is None else "warn"),
        *machine_checks(),
        *(() if data is None else directory_checks(data)),
    ]
    failed = sum(check.result == "fail" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": checks})
    else:
        for check in checks:
            _print(check)
        warned = sum(check.result == "warn" for check in checks)
        print_line(f"{len(checks)} checks: {len(checks) - failed - warned} ok, {warned} warn, {failed} fail")
    if failed:
        raise typer.Exit(Exit.FAILED)


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _print(check: Check) -> None:
    from rich.text import Text

    line = Text.assemble((f"{check.result:<4}", _COLOURS[check.result]), f"  {check.check:<12}  {check.detail}")
    print_line(line)
    if check.advice:
        print_line(f"{'':<20}→ {check.advice}")


# --- the server -----------------------------------------------------------------------------------------------------


def server_checks(url: str, api_key: str | None, unreachable: Result) -> Iterator[Check]:
    with connect(url, api_key, patience=0.0) as client:
        try:
            # Opens the connection.
            health_of(client)
            started = time.perf_counter()
            health = health_of(client)
            took = (time.perf_counter() - started) * 1000
        except (StrandlineError, CommandFailed) as error:
            yield Check(
                "server", unreachable, str(error), "start it with `strandline serve`, or set --url or STRANDLINE_URL"
            )
            return
        yield Check("server", "ok", f"{client.url} answered in {took:.1f} ms, up for {show_age(health.uptime_ms)}")
        yield version_check(health.version)
        yield health_check(health)
        yield clock_check(client)
        try:
            metrics = metrics_of(client)
        except (NotAuthenticated, Forbidden) as error:
            advice = "set --api-key or STRANDLINE_KEY to a key with the scope read"
            yield Check("api key", "fail", error.message, advice)
            return
        yield Check("api key", "ok", "the server accepts the key" if api_key else "no key is needed to read")
        yield from load_checks(metrics)


def version_check(server: str) -> Check:
    if server == __version__:
        return Check("versions", "ok", f"the server and this command are {server}")
    advice = "install the same version on both sides: `pip install strandline==VERSION`"
    return Check("versions", "warn", f"the server is {server}, this command is {__version__}", advice)


def health_check(health: Health) -> Check:
    if health.role == "standby":
        leader = f"the leader at {health.leader}" if health.leader else "a leader"
        return Check("health", "ok", f"the server is a standby for {leader}")
    if health.role == "replaced":
        return Check(
            "health",
            "fail",
            health.reason,
            "use the other server; move this data directory away and restart with --standby",
        )
    if health.status == "read_only":
        advice = "free space or repair the disk, then restart the server; until then it refuses writes"
        return Check("health", "fail", f"the journal failed: {health.reason}", advice)
    if health.failing:
        failing = "; ".join(f"{one['task']}: {one['error']}" for one in health.failing)
        return Check("health", "warn", f"background tasks fail: {failing}", "look at the log of the server")
    return Check("health", "ok", "the journal and all background tasks work")


def clock_check(client: Client) -> Check:
    before = time.time_ns() // 1_000_000
    server = msgspec.json.decode(client.call("GET", "/health").body)["ts"]
    return clock_difference(server, before, time.time_ns() // 1_000_000)


def clock_difference(server: int, before: int, after: int) -> Check:
    """The server's clock was read between two times of this machine."""
    off = max(before - server, server - after, 0)
    if off < CLOCK_WARN_MS:
        return Check("clock", "ok", "the clocks of the server and of this machine agree")
    result: Result = "fail" if off >= CLOCK_FAIL_MS else "warn"
    side = "behind" if server < before else "ahead of"
    return Check("clock", result, f"the server's clock is {show_age(off)} {side} this one", "synchronize both with NTP")


def load_checks(metrics: dict[str, Any]) -> Iterator[Check]:
    sealing = metrics["sealing"]
    used = sealing["unsealed_bytes"] / max(sealing["budget_bytes"], 1)
    text = f"{used:.0%} of {decimal(sealing['budget_bytes'])} are not sealed"
    if sealing["writes_refused_total"]:
        text += f"; {sealing['writes_refused_total']:,} writes were refused since the start"
    is_full = used >= JOURNAL_WARN or sealing["writes_refused_total"]
    advice = "writes come faster than the disk or the processor can seal them; raise `unsealed_bytes`, or write less"
    yield Check("journal", "warn" if is_full else "ok", text, advice if is_full else "")
    if metrics["damaged_files"]:
        advice = "stop the server and run `strandline verify DIR`, which names them and can repair the directory"
        yield Check("files", "fail", f"{metrics['damaged_files']:,} files are damaged", advice)
    else:
        yield Check("files", "ok", "no damaged file was found")
    if "replica" in metrics:
        yield replica_check(metrics["replica"])
    if "follower" in metrics:
        yield follower_check(metrics["follower"])
    yield pipeline_check(metrics["pipeline"])


def replica_check(replica: dict[str, Any]) -> Check:
    text = f"term {replica['term']}, lacks {show_lag(replica)}"
    if replica["missing_segments"]:
        text += f"; {replica['missing_segments']:,} segments are still to be fetched from it"
    if replica["away"] or replica["lag_ms"] > REPLICA_WARN_MS:
        advice = "check the object store and the network; writes to `replicated` logs wait or are refused"
        return Check("replica", "fail" if replica["away"] else "warn", text, advice)
    return Check("replica", "ok", text)


def follower_check(follower: dict[str, Any]) -> Check:
    text = f"{follower['lag_ms'] / 1000:.1f} s behind the leader (term {follower['term']})"
    if follower["lag_ms"] > FOLLOWER_WARN_MS:
        return Check("follower", "warn", text, "check the object store, the network and the log of this server")
    return Check("follower", "ok", text)


def pipeline_check(pipeline: dict[str, Any]) -> Check:
    state = pipeline["state"]
    if state == "backing_off":
        advice = "run `strandline pipeline status --url URL` to see why; it is started again later"
        return Check("pipeline", "warn", f"it failed {pipeline['failures']:,} times", advice)
    if state == "missing":
        advice = "`pip install 'strandline[all]'` on the server, or start it with `--pipeline off`"
        return Check("pipeline", "warn", "the server has no Spark or Java, so its lake is not kept current", advice)
    lag = "" if state == "off" else f", {counted(pipeline['lag_records'], 'record')} not in the lake yet"
    return Check("pipeline", "ok", f"{state}{lag}")


# --- this machine ---------------------------------------------------------------------------------------------------


def machine_checks() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} in {sys.prefix}")
    yield extras_check()
    yield spark_check()
    yield files_check(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield contexts_check()


def extras_check() -> Check:
    missing = [extra for extra, (_, packages) in EXTRAS.items() if not all(map(is_installed, packages))]
    installed = ", ".join(extra for extra in EXTRAS if extra not in missing)
    text = f"the extras {installed} are installed" if installed else "no extra is installed"
    if missing:
        text += "; missing: " + ", ".join(f"{extra}, for {EXTRAS[extra][0]}" for extra in missing)
    advice = f"`{install(','.join(missing))}`, if you need them here" if missing else ""
    return Check("extras", "warn" if missing else "ok", text, advice)


def spark_check() -> Check:
    if not is_installed("pyspark"):
        return Check(
            "spark",
            "warn",
            "PySpark is not installed, so no pipeline runs here",
            "`pip install 'strandline[all]'`, or run the server with `--pipeline off`",
        )
    from strandline.pipeline.java import JavaMissing, find_java

    try:
        java = find_java()
    except JavaMissing as error:
        return Check("spark", "warn", "PySpark is installed, but no Java for it", str(error))
    return Check("spark", "ok", f"PySpark is installed, with Java {java.version} from {java.origin}")


def files_check(limit: int) -> Check:
    if limit == resource.RLIM_INFINITY or limit >= FILES:
        return Check("open files", "ok", f"a process may open {'any number of' if limit < 0 else f'{limit:,}'} files")
    advice = f"raise it where a server runs: `ulimit -n {FILES}`, or LimitNOFILE in its systemd unit"
    return Check("open files", "warn", f"a process may open only {limit:,} files", advice)


def contexts_check() -> Check:
    path = contexts_path()
    try:
        contexts = load_contexts()
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    except (CommandFailed, OSError) as error:
        return Check("contexts", "fail", str(error), "correct or delete the file")
    if mode & 0o077 and any(server.api_key for server in contexts.servers.values()):
        return Check("contexts", "fail", f"other users may read the API keys in {path}", f"`chmod 600 {path}`")
    current = f", {contexts.current} is the current one" if contexts.current else ""
    return Check("contexts", "ok", f"{len(contexts.servers)} contexts{current}")


# --- a data directory -----------------------------------------------------------------------------------------------


def directory_checks(path: Path) -> Iterator[Check]:
    if not path.is_dir():
        advice = "give the directory of `strandline serve --data`; a server creates one that does not exist"
        yield Check("directory", "fail", f"{path} is not a directory", advice)
        return
    if (path / "MANIFEST").exists():
        yield Check("directory", "ok", f"{path} is a data directory")
    else:
        has = "is empty" if not any(path.iterdir()) else "has no MANIFEST, but other files"
        result: Result = "ok" if has == "is empty" else "fail"
        advice = "" if result == "ok" else "give another directory, or an empty one for a new server"
        yield Check("directory", result, f"{path} {has}", advice)
    yield permissions_check(path)
    yield space_check(shutil.disk_usage(path))
    yield file_system_check(path, Path("/proc/self/mounts"))


def permissions_check(path: Path) -> Check:
    denied = [
        str(each)
        for each in (path, *path.iterdir())
        if not os.access(each, os.R_OK | os.W_OK | (os.X_OK if each.is_dir() else 0))
    ]
    if denied:
        advice = "run the server as the owner of the files, or change the owner with `chown -R`"
        return Check("permissions", "fail", f"cannot read and write {denied[0]}", advice)
    return Check("permissions", "ok", "all files can be read and written")


def space_check(usage: Any) -> Check:
    text = f"{decimal(usage.free)} of {decimal(usage.total)} are free"
    if usage.free >= FREE_WARN:
        return Check("disk", "ok", text)
    advice = "free space, or move old segments to a cold tier (the setting `cold_url`); a full disk stops all writes"
    return Check("disk", "fail" if usage.free < FREE_FAIL else "warn", text, advice)


def file_system_check(path: Path, mounts: Path) -> Check:
    kind = file_system(path.resolve(), mounts.read_text() if mounts.exists() else "")
    if kind in VOLATILE:
        return Check(
            "file system", "warn", f"{kind} is in memory: a restart of the machine loses all data", "use a disk"
        )
    if kind in REMOTE:
        advice = "use a local disk: after a crash, acknowledged records may be missing"
        return Check("file system", "warn", f"{kind} is on the network", advice)
    return Check("file system", "ok", kind or "unknown on this system")


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system of a path, from the lines of ``/proc/self/mounts``; empty if it is not there."""
    longest, kind = "", ""
    for line in mounts.splitlines():
        _, place, name, *_ = line.split()
        place = place.replace("\\040", " ")
        if len(place) >= len(longest) and (path == Path(place) or Path(place) in path.parents):
            longest, kind = place, name
    return kind
