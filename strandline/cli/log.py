"""``strandline log``: its commands, put together."""

from __future__ import annotations

import typer

from strandline.cli.log_append import append_command
from strandline.cli.log_create import create_command
from strandline.cli.log_delete import delete_command
from strandline.cli.log_list import list_command
from strandline.cli.log_read import diff_command, tail_command
from strandline.cli.log_show import show_command

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
