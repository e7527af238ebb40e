"""The ``strandline`` command. Without an extra, the commands that talk to a server work."""

from __future__ import annotations

import sys

#: The extras of commands that need more than one package. The extra of the missing package is enough for others.
EXTRAS_OF_COMMANDS = {"pipeline": "spark", "sql": "sql"}


def main() -> None:
    try:
        from strandline.cli.commands import run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("strandline", "pyspark_strandline"):
            raise
        from strandline.extras import extra_of, install

        extra = EXTRAS_OF_COMMANDS.get(_command() or "") or extra_of(error.name)
        sys.exit(
            f"strandline: this command needs the Python package {error.name!r}, which is not installed; "
            f"install what it needs with `{install(extra)}`"
        )


def _command() -> str | None:
    """The command that was given."""
    from strandline.cli.commands import COMMANDS

    return next((argument for argument in sys.argv[1:] if argument in COMMANDS), None)


if __name__ == "__main__":
    main()
