"""The npm package: what it contains, and that a project which installs it can use it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.document_tables import ROOT
from support.node_packages import Unavailable, require_packages

import strandline

PACKAGE = ROOT / "clients" / "js"
BROWSER = ROOT / "tests" / "browser"
DECLARED: dict[str, Any] = json.loads((PACKAGE / "package.json").read_text())
#: Generous: the machine may be busy.
RUN_SECONDS = 240.0

PROGRAM = """
import { connect, createLog, makeUseLog, StrandlineError } from "strandline";
import { useLog } from "strandline/react";
import { Client } from "strandline/topics";
const api = connect("http://127.0.0.1:4000");
console.log(typeof createLog, typeof makeUseLog, typeof useLog, new StrandlineError("A", "b").code, api.vote.name);
console.log(new Client("http://127.0.0.1:4000").topic("orders").name);
"""
TYPED = """
import { connect, createLog, type Log } from "strandline";
import { useLog } from "strandline/react";
import { Client } from "strandline/topics";
import type { Tables, PollPayload, PollInput } from "./tables.js";
const api = connect<Tables>("http://127.0.0.1:4000", { token: () => fetch("/token").then((answer) => answer.text()) });
export const polls: Log<PollPayload, PollInput> = createLog(api.poll, { parent: "main" });
export const Questions = (): string[] => useLog(api.poll, { parent: "main" }).data.map((row) => row.question);
export const head = async (): Promise<number> => (await new Client("http://127.0.0.1:4000").topic("orders").state()).head_seq;
// @ts-expect-error a poll has options
polls.append({ payload: { question: "?" } });
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the packed module and React, and nothing of this repository."""
    folder = tmp_path_factory.mktemp("project")
    try:
        packages = require_packages(BROWSER)
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)
    (packed,) = json.loads(run("npm", "pack", "--json", "--pack-destination", folder, cwd=PACKAGE))
    (folder / "package.json").write_text(json.dumps({"name": "project", "private": True, "type": "module"}))
    # Nothing is downloaded: the tarball has no dependencies, and React is there.
    install = ["npm", "install", "--offline", "--no-audit", "--no-fund", "--legacy-peer-deps"]
    run(*install, folder / packed["filename"], cwd=folder)
    (folder / "node_modules" / "react").symlink_to(packages / "react")
    (folder / "files.json").write_text(json.dumps([each["path"] for each in packed["files"]]))
    return folder


def test_the_package_is_not_private_and_has_the_version_of_the_server() -> None:
    assert "private" not in DECLARED
    assert DECLARED["version"] == strandline.__version__
    assert not {"dependencies", "devDependencies", "scripts"} & DECLARED.keys()
    assert (PACKAGE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_tarball_has_the_module_its_types_and_how_to_use_it(project: Path) -> None:
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert set(json.loads((project / "files.json").read_text())) == files


def test_node_can_import_what_is_installed(project: Path) -> None:
    (project / "program.js").write_text(PROGRAM)
    assert run("node", "program.js", cwd=project) == "function function function A vote\norders\n"


def test_a_project_with_typescript_gets_types(project: Path) -> None:
    (project / "tables.d.ts").write_bytes((ROOT / "examples/poll/page/tables.d.ts").read_bytes())
    (project / "page.ts").write_text(TYPED)
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"]
    run(BROWSER / "node_modules" / ".bin" / "tsc", *options, "--lib", "es2022,dom,dom.iterable", "page.ts", cwd=project)
