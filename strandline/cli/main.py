"""The ``strandline`` command. Without the extra ``server``, the commands that talk to a server work."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from strandline.cli.commands import run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("strandline", "pyspark_strandline"):
            raise
        extra = "spark" if _command() == "pipeline" else "server"
        sys.exit(
            f"strandline: this command needs the Python package {error.name!r}, which is not installed; "
            f"install what it needs with `pip install 'strandline[{extra}]'`"
        )


def _command() -> str | None:
    """The command that was given."""
    from strandline.cli.commands import COMMANDS

    return next((argument for argument in sys.argv[1:] if argument in COMMANDS), None)


if __name__ == "__main__":
    main()
