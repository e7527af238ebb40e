"""``strandline log``: its commands, put together."""

from __future__ import annotations

import typer

from strandline.cli.log_appending import append_command
from strandline.cli.log_creating import create_command
from strandline.cli.log_deleting import delete_command
from strandline.cli.log_listing import list_command
from strandline.cli.log_reading import diff_command, tail_command
from strandline.cli.log_showing import show_command

app = typer.Typer(
    name="log", no_args_is_help=True, help="Look at logs, write to them, follow them: topics, streams and all others."
)
app.command("ls")(list_command)
app.command("show")(show_command)
app.command("create")(create_command)
app.command("append")(append_command)
app.command("tail")(tail_command)
app.command("diff")(diff_command)
app.command("delete")(delete_command)
