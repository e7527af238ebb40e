"""The files of the server's image: an environment, its Python, the libraries that they load, and little else.

``python image_root.py ENVIRONMENT ROOT`` runs in an image with Python, as the environment's own interpreter. It removes
from the environment what a server never loads, and copies it to the new root directory with everything that it needs
from the system. Programs outside the environment are a shell and a few to look around with.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Parts of the standard library that nothing here imports. Each is a name in its directory.
STANDARD_LIBRARY = {
    "__phello__", "_pydatetime.py", "_pydecimal.py", "_pyio.py", "curses", "dbm", "ensurepip", "idlelib", "lib2to3",
    "pydoc_data", "site-packages", "sqlite3", "test", "tkinter", "turtle.py", "turtledemo", "unittest", "venv",
    "xmlrpc",
}  # fmt: skip
EXTENSIONS = re.compile(
    r"_crypt|_curses|_dbm|_gdbm|_sqlite3|_test|_ctypes_test|_tkinter|_xxtestfuzz|audioop|nis|ossaudiodev|xx"
)
#: Sources, headers and type stubs of what is compiled.
SOURCES = (".pyx", ".pxd", ".pxi", ".c", ".cc", ".h", ".hpp", ".lib", ".a", ".pyi")
#: Parts of packages that no program imports.
UNUSED = ("numpy/**/tests", "pyarrow/include", "pyarrow/includes", "pyarrow/src", "pyarrow/tests", "*.dist-info/sboms")
#: Parts of packages, which report it if they are used: Arrow Flight, Arrow's own clients of object stores, because
#: obstore is used, and file formats that nothing here reads; parts of numpy that it loads when they are first used;
#: highlighting of source code.
PARTS = (
    "pyarrow/*flight*", "pyarrow/*_s3*", "pyarrow/_azurefs*", "pyarrow/_gcsfs*", "pyarrow/_hdfs*", "pyarrow/_orc*",
    "pyarrow/_dataset_orc*", "pyarrow/_pyarrow_cpp_tests*", "numpy/f2py", "numpy/_core/_simd*", "numpy/_core/lib",
    "numpy/fft", "numpy/polynomial", "numpy/random", "pygments/lexers/[a-z]*",
)  # fmt: skip
#: A wheel cannot have links, so it may have a library under several names. Only this one is loaded.
LOADED = re.compile(r"\.so\.\d+$")

#: Programs to look into a container with.
PROGRAMS = ("sh", "cat", "df", "env", "head", "id", "ls", "tail")
#: Loaded by name while a program runs.
LIBRARIES = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")
#: Files of the system: users, names of services, certificates, time zones, the text encoding.
SYSTEM = (
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", "/etc/os-release",
    "/etc/debian_version", "/etc/ssl/openssl.cnf", "/etc/ssl/certs/ca-certificates.crt", "/usr/lib/os-release",
    "/usr/lib/ssl/openssl.cnf", "/usr/lib/ssl/cert.pem", "/usr/share/zoneinfo", "/usr/lib/locale/C.utf8",
)  # fmt: skip
ZONES_LEFT_OUT = ("right", "posix")


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def trim(packages: Path) -> None:
    """Remove from the installed packages what a server never loads."""
    for pattern in (*UNUSED, *PARTS):
        for path in list(packages.glob(pattern)):
            remove(path)
    for path in packages.rglob("*"):
        if path.name.endswith(SOURCES) and path.is_file():
            path.unlink()
    for loaded in packages.rglob("*.so.*"):
        if LOADED.search(loaded.name):
            stem = loaded.name.rpartition(".")[0]
            for path in (loaded.with_name(stem), *loaded.parent.glob(f"{loaded.name}.*")):
                if path.exists() and path.stat().st_size == loaded.stat().st_size:
                    path.unlink()


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def strip(root: Path) -> None:
    """Remove the symbols that only debuggers use."""
    for path in filter(is_elf, root.rglob("*.so*")):
        # Libraries in these directories were rearranged when the wheel was made, and cannot be loaded afterwards.
        if not path.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)


#: Imports what a server imports, sooner or later, and prints the files.
IMPORT = """
import importlib, pkgutil, sys
from importlib.util import find_spec

import jsonschema_rs, nacl.bindings, numpy.ma, obstore.store, prometheus_client, ssl, uvloop, websockets, xxhash, yaml
import cryptography.hazmat.primitives.asymmetric.ed25519, cryptography.hazmat.primitives.ciphers.aead
import pyarrow.compute, pyarrow.csv, pyarrow.dataset, pyarrow.json, pyarrow.parquet
import strandline.cli.serve

left_out = {"cli", "pipeline", "sql", "testing"}
for module in pkgutil.walk_packages(strandline.__path__, "strandline."):
    if module.name.split(".")[1] not in left_out and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for package, module in (("duckdb", "strandline.sql.query_process"), ("deltalake", "deltalake")):
    if find_spec(package):
        importlib.import_module(module)
assert (numpy.ones((9, 9)) @ numpy.ones(9)).sum() == 81 and pyarrow.compute.sum(pyarrow.array([1, 2])).as_py() == 3
print(*sorted({str(getattr(module, "__file__", None)) for module in sys.modules.values()}), sep=chr(10))
"""


def import_all(python: Path, root: Path) -> list[Path]:
    """Import everything in the new root directory; returns the files. Fails if a file is missing."""
    told = subprocess.run(
        [str(python), "-B", "-c", IMPORT],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        preexec_fn=lambda: os.chroot(root),
    ).stdout
    return [Path(line) for line in told.splitlines()]


def compile_imported(python: Path, root: Path, packages: Path) -> None:
    """Store the bytecode of what is imported, because the root directory of a container may be read-only. Other
    packages then need no source. Bytecode is valid whatever the times of the files become."""
    for path in import_all(python, root):
        if path.suffix != ".py":
            continue
        source = root / path.relative_to("/")
        is_package = packages in path.parents and path.relative_to(packages).parts[0] != "strandline"
        py_compile.compile(
            str(source),
            cfile=str(source.with_suffix(".pyc")) if is_package else None,
            dfile=str(path),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        if is_package:
            source.unlink()
    import_all(python, root)


def libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """What these programs and libraries load when they start."""
    for program in programs:
        told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        if "not found" in told:
            raise SystemExit(f"a library of {program} is missing:\n{told}")
        for found in re.findall(r"(/\S+) \(0x", told):
            yield Path(found)


class Root:
    """The new root directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                (place / name).symlink_to(os.readlink(Path("/", name)))

    def add(self, path: Path) -> None:
        """Copy a file, a link with its target, or a directory."""
        real = Path(os.path.realpath(path.parent)) / path.name
        target = self.place / real.relative_to("/")
        if target.is_symlink() or target.is_file():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if real.is_symlink():
            target.symlink_to(os.readlink(real))
            self.add(real.parent / os.readlink(real))
        elif real.is_dir():
            target.mkdir(exist_ok=True)
            for each in real.iterdir():
                self.add(each)
        else:
            shutil.copy2(real, target)


def add_python(root: Root) -> None:
    """The interpreter, and its library without what no server imports."""
    base, name = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    root.add(base / "bin" / name)
    for library in (base / "lib").glob("libpython*.so.1.0"):
        root.add(library)
    target = root.place / (base / "lib" / name).relative_to("/")
    shutil.copytree(
        base / "lib" / name,
        target,
        symlinks=True,
        ignore=lambda place, names: {
            each
            for each in names
            if each == "__pycache__"
            or (Path(place).name == name and (each in STANDARD_LIBRARY or each.startswith("config-")))
            or (Path(place).name == "lib-dynload" and EXTENSIONS.match(each))
        },
    )
    for each in ("python3", "python"):
        (root.place / (base / "bin").relative_to("/") / each).symlink_to(name)


def main() -> None:
    environment, place = Path(sys.argv[1]), Path(sys.argv[2])
    packages = Path(sysconfig.get_path("purelib"))
    trim(packages)
    root = Root(place)
    add_python(root)
    root.add(environment)
    strip(place)
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            root.add(Path(found))
    for path in SYSTEM:
        if Path(path).exists():
            root.add(Path(path))
    for name in ZONES_LEFT_OUT:
        shutil.rmtree(place / "usr/share/zoneinfo" / name, ignore_errors=True)
    multiarch = sysconfig.get_config_var("MULTIARCH")
    for name in LIBRARIES:
        if Path("/lib", multiarch, name).exists():
            root.add(Path("/lib", multiarch, name))
    files = [path for path in place.rglob("*") if is_elf(path)]
    for library in sorted(set(libraries(files))):
        if place not in library.parents:
            root.add(library)
    compile_imported(environment / "bin/python", place, packages)


if __name__ == "__main__":
    main()
