"""The built package with what an extra requires, in an environment without anything else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from support.document_tables import ROOT


def unpack(place: Path, extras: tuple[str, ...] = ()) -> Path:
    """A directory with the package, and links to the packages that it requires with these extras."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (place / "dist").glob("*.whl")
    packages = place / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    _link(required, ("", *extras), required, packages, set())
    return packages


def environment(place: Path, *extras: str) -> Path:
    """A virtual environment with the package and these extras; returns its interpreter."""
    packages = unpack(place, extras)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    (installed,) = (place / "venv" / "lib").glob("python*/site-packages")
    (installed / "strandline.pth").write_text(f"{packages}\n")
    return place / "venv" / "bin" / "python"


def _link(required: list[str], extras: tuple[str, ...], own: list[str], packages: Path, known: set[str]) -> None:
    """Make what is required importable from there, and what that requires in turn. ``own`` are the requirements of
    Strandline, whose extras refer to each other."""
    for line in required:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if requirement.name == "strandline":
            _link(own, tuple(requirement.extras), own, packages, known)
            continue
        if requirement.name in known:
            continue
        known.add(requirement.name)
        package = distribution(requirement.name)
        for top in {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(top))))
        _link(package.requires or [], ("", *requirement.extras), own, packages, known)
