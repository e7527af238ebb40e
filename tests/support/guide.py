"""A page, followed: its programs are written to files, its commands run, their output compared.

In a block of ``console``, a line that begins with ``$`` is a command and what follows is its output. A program is named
by its first line, ``# name`` or ``// name``, or by a comment ``<!-- file: name -->`` before it. A comment
``<!-- meanwhile -->`` before a block says that it runs while the next one does; with a text,
``<!-- meanwhile: text -->``, the next one waits until that was said. With ``<!-- meanwhile: text; until: other -->`` it
is interrupted when it has said the other text. A command with ``> file 2>&1 &`` leaves a process running, which ends
with the page.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

#: Where a page says that the server listens, and programs of its own: also servers that the page starts.
SERVER_PORT, PROGRAM_PORTS = 4000, (4001, 4002, 8000)
#: No command takes this long. Generous: the machine may be busy.
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01
NEEDED = ("bash", "curl", "jq", "node")

_BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?(?:<!-- meanwhile(?:: (?P<sign>[^;\n]*?))?(?:; until: (?P<until>.*?))? -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)```\n",
    re.DOTALL,
)
_PROGRAM = re.compile(r"(?:#|//) (\S+\.\w+)\n")

#: Headers that are on every answer, or are no business of the protocol.
_LEFT_OUT = re.compile(
    r"^(?:date|server|connection|transfer-encoding|content-length|x-content-type-options|vary|search-[\w-]+"
    r"|cross-origin-resource-policy|content-security-policy|access-control-[\w-]+): .*\n",
    re.MULTILINE | re.IGNORECASE,
)
#: What is another one whenever the guide is followed.
_VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<time>"),
    (re.compile(r"\b\d{8}T\d{6}\.\d{3}Z"), "<backup>"),
    (re.compile(r"\b1[789]\d{11}\b"), "<ms>"),
    (re.compile(r"\b[\d.]+ (?:bytes|kB|MB)\b"), "<size>"),
    (re.compile(r'("\w*_?(?:took|time|get|scan|enumerate|merge|decode|fallback\w*)_ms": ?)[\d.]+'), r"\1<n>"),
    (re.compile(r'("server_total_ms":|"wal_append_ms":|"fsync_ms":|"throttle_wait_ms":)[\d.]+'), r"\1<n>"),
    (re.compile(r'(stream-cursor: |"streamCursor":")\d+'), r"\1<n>"),
    (re.compile(r'("(?:wake_id|token|callback_token|kid|x)": ?")[^"]+'), r"\1<secret>"),
    (re.compile(r"\b[0-9a-f]{16}:\d+"), "<cursor>"),
    (re.compile(r"\bwid_[\w-]+"), "<wid>"),
    (re.compile(r'("effective_priority":)\d+'), r"\1<n>"),
    (re.compile(r"(etag: .*):[0-9a-f]+\.[0-9a-f]+\."), r"\1:<epoch>."),
    (re.compile(r'("oldest_ready_ms":|"throughput":|"failure_rate":)[\d.]+'), r"\1<n>"),
    (re.compile(r"answered in [\d.]+ ms"), "answered in <n> ms"),
    (re.compile(r"^(oldest ready|throughput|failure rate) +[\d.]+(?:m?s| jobs/s|%)$", re.MULTILINE), r"\1 <n>"),
)


#: A command that leaves a process running. Its output goes to a file.
_LEFT_RUNNING = re.compile(r" > \S+ 2>&1 &(?: |$)")


class Step(NamedTuple):
    """A command, and the output that the guide shows."""

    command: str
    output: str


class Block(NamedTuple):
    """``file`` is the name of a program, or nothing. ``sign``: None unless it runs beside the next one; ``until``: what
    it says before it is interrupted, or nothing if it ends by itself. ``start`` and ``end`` are where it stands in the
    document."""

    kind: str
    text: str
    file: str
    sign: str | None
    until: str
    start: int
    end: int


def blocks(document: str) -> Iterator[Block]:
    for match in _BLOCK.finditer(document):
        sign = (match["sign"] or "") if match[0].startswith("<!-- meanwhile") else None
        program = _PROGRAM.match(match["text"])
        file = match["file"] or (program[1] if program else "")
        yield Block(match["kind"], match["text"], file, sign, match["until"] or "", *match.span("text"))


def steps(text: str) -> list[Step]:
    """The commands of a block of ``console``."""
    found: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append([line[2:], ""])
        elif _is_open(found[-1][0]):
            found[-1][0] += line
        else:
            found[-1][1] += line
    return [Step(command.rstrip("\n"), output) for command, output in found]


def _is_open(command: str) -> bool:
    """Whether the command goes on in the next line."""
    if command.endswith("\\\n"):
        return True
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def settled(output: str) -> str:
    """The output without what is another one every time."""
    for pattern, replacement in _VARYING:
        output = pattern.sub(replacement, output)
    return output


class Follower:
    """Follows the guide against the server that listens at ``port``, in an empty directory."""

    def __init__(self, port: int, directory: Path, modules: Path) -> None:
        self._directory = directory
        self._ports = {SERVER_PORT: port}
        self._exports: list[str] = []
        self._beside: tuple[Block, subprocess.Popen[str]] | None = None
        #: The groups of processes that the page left running.
        self._left: list[int] = []
        self.patience = PATIENCE_SECONDS
        (directory / "node_modules").symlink_to(modules)
        self._environment = {**os.environ, "no_proxy": "*", "PYTHONUNBUFFERED": "1"}
        self._environment["STRANDLINE_URL"] = f"http://127.0.0.1:{port}"
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def follow(self, document: str) -> Iterator[tuple[Block, str]]:
        """Every block of ``console`` with what it should say, as soon as that is known."""
        for block in blocks(document):
            if block.kind == "console":
                yield from self._run(block)
            else:
                self._write(block)
        assert self._beside is None, "nothing follows what was to run beside it"

    def close(self) -> None:
        """Leave no process behind."""
        if self._beside is not None and self._beside[1].poll() is None:
            os.killpg(self._beside[1].pid, signal.SIGKILL)
            self._beside[1].wait()
        for group in self._left:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _write(self, block: Block) -> None:
        """A program, to its file."""
        if block.file:
            (self._directory / block.file).write_text(self._there(block.text))

    def _run(self, block: Block) -> Iterator[tuple[Block, str]]:
        if block.sign is not None:
            (step,) = steps(block.text)
            self._beside = block, self._start(step.command)
            self._wait_for(self._beside[1], block.sign)
            return
        said = ""
        for step in steps(block.text):
            said += _shown(step.command, self._output(step.command))
        yield block, said
        if self._beside is not None:
            other, process = self._beside
            command = steps(other.text)[0].command
            if other.until:
                self._wait_for(process, other.until)
                os.killpg(process.pid, signal.SIGINT)
            code = process.wait(PATIENCE_SECONDS)
            assert code == 0 or other.until, f"{command} ended badly:\n{self._said().read_text()}"
            self._beside = None
            yield other, _shown(command, self._here(self._said().read_text()))

    def _output(self, command: str) -> str:
        if command.startswith("export "):
            self._exports.append(command)
        process = subprocess.Popen(
            self._bash(command),
            **self._surroundings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._left += [process.pid] if _LEFT_RUNNING.search(command) else []
        try:
            said, complaints = process.communicate(timeout=self.patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        assert process.returncode == 0, f"{command}\nended with {process.returncode}\n{said}{complaints}"
        return self._here(said)

    def _start(self, command: str) -> subprocess.Popen[str]:
        with self._said().open("w") as said:
            return subprocess.Popen(
                self._bash(command), **self._surroundings(), stdout=said, stderr=said, start_new_session=True
            )

    def _wait_for(self, process: subprocess.Popen[str], sign: str) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        while sign not in self._said().read_text():
            if process.poll() is not None or monotonic() > deadline:
                raise AssertionError(f"{process.args}\ndid not say {sign!r}, but:\n{self._said().read_text()}")
            sleep(POLL_SECONDS)

    def _bash(self, command: str) -> list[str]:
        return ["bash", "-c", self._there("\n".join([*self._exports, command]))]

    def _surroundings(self) -> dict[str, object]:
        return {"cwd": self._directory, "env": self._environment, "stdin": subprocess.DEVNULL, "text": True}

    def _said(self) -> Path:
        return self._directory / ".said"

    def _there(self, text: str) -> str:
        for shown in PROGRAM_PORTS:
            if shown not in self._ports and re.search(rf"\b{shown}\b", text):
                self._ports[shown] = free_port()
        for shown, port in self._ports.items():
            text = re.sub(rf"\b{shown}\b", str(port), text)
        return text

    def _here(self, text: str) -> str:
        for shown, port in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(shown), text)
        return text


def _shown(command: str, output: str) -> str:
    """As it stands in the guide."""
    if re.search(r"curl -s\w*[iI]", command):
        output = _LEFT_OUT.sub("", output.replace("\r\n", "\n"))
        output = output.rstrip("\n")
    if output and not output.endswith("\n"):
        output += "\n"
    return f"$ {command}\n{output}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def rewritten(document: str, follower: Follower) -> str:
    """The document with what really came back."""
    found = dict[Block, str]()
    for block, said in follower.follow(document):
        found[block] = said
    for block in sorted(found, key=lambda block: -block.start):
        document = document[: block.start] + found[block] + document[block.end :]
    return document
