"""The ``strandline`` command. It is there wherever the package is, also where nothing but the client was installed."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from strandline.cli.commands import run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("strandline", "pyspark_strandline"):
            raise
        sys.exit(f"strandline: this needs the server, pip install 'strandline[server]' ({error.name} is missing)")


if __name__ == "__main__":
    main()
