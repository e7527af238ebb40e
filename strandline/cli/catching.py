"""What goes wrong on purpose is one line on standard error and an exit code, never a traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from strandline.cli.exits import CommandFailed, code_of
from strandline.cli.output import say


class Catching(TyperGroup):
    """The commands, with what becomes of their errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise  # whoever read what is printed has read enough: the caller ends the process in silence
        except CommandFailed as error:
            say(str(error))
            raise typer.Exit(error.code) from None
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            say(str(error))
            raise typer.Exit(code) from None
