"""What ``pip install strandline`` gives, without any extra: the client, and a command that says what it lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from support.document_tables import ROOT
from support.server_process import ServerProcess

PROGRAM = """
import asyncio, sys
from strandline.client import AsyncClient, Client

url = sys.argv[1]
with Client(url) as client:
    client.topic("base").write({"by": "threads"})

async def main():
    async with AsyncClient(url) as client:
        await client.topic("base").write({"by": "an event loop"})
        return [record.data["by"] async for record in client.topic("base").read()]

print(asyncio.run(main()))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "pyarrow", "starlette", "typer", "uvicorn"}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the built package and what it requires, and nothing else."""
    place = tmp_path_factory.mktemp("base")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (place / "dist").glob("*.whl")
    packages = place / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    link_required(required, packages, set())
    return packages


def link_required(required: list[str], packages: Path, known: set[str]) -> None:
    """Make what is required importable from there, and what that requires in turn."""
    for line in required:
        name = re.split(r"[^A-Za-z0-9._-]", line)[0]
        if "extra ==" in line or ("python_version" in line and "<" in line) or name in known:
            continue
        known.add(name)
        package = distribution(name)
        for top in {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(top))))
        link_required(package.requires or [], packages, known)


def run(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with nothing but its own library and those packages."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, "-S", *arguments], cwd=packages, env=environment, capture_output=True, text=True, check=False
    )


def test_the_client_needs_nothing_but_what_the_package_requires(installed: Path, server: ServerProcess) -> None:
    done = run(installed, "-c", PROGRAM, server.url)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['threads', 'an event loop']", "[]"]


def test_the_command_says_in_one_line_what_to_install(installed: Path) -> None:
    done = run(installed, "-m", "strandline", "serve")
    assert done.returncode == 1
    assert re.fullmatch(
        r"strandline: the Python package '\w+' is missing; "
        r"install the server's dependencies with `pip install 'strandline\[server\]'`\n",
        done.stderr,
    )


def test_types_come_with_it(installed: Path) -> None:
    assert (installed / "strandline" / "py.typed").exists()
