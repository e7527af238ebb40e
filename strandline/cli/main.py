"""The ``strandline`` command. It is installed with the package, also where only the client's dependencies are."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from strandline.cli.commands import run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("strandline", "pyspark_strandline"):
            raise
        sys.exit(
            f"strandline: the Python package {error.name!r} is missing; install the server's dependencies with "
            "`pip install 'strandline[server]'`"
        )


if __name__ == "__main__":
    main()
