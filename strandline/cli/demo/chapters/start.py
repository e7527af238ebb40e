"""A server, and where to look at it."""

from __future__ import annotations

from strandline.cli.demo.stage import Stage


def start_a_server(stage: Stage) -> None:
    with stage.teller.chapter("A server") as tell:
        seconds = stage.server.start()
        tell.say(f"`strandline serve` listens on {stage.server.url} and was ready after {seconds:.1f} s.")
        tell.say("One process, one directory, no other service. While this runs, you can watch it in a browser:")
        tell.quote(f"{stage.server.url}/console")
