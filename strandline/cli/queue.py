"""``strandline queue``: look at the jobs of a queue, do them, and give dead letters another chance."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import Raw

from strandline.cli.completion import complete_queue
from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, connect
from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.output import counted, print_fields, print_json, print_line
from strandline.cli.queue_work import work_command
from strandline.cli.records import line_of, of_topic
from strandline.client import Client, NotFound
from strandline.client.queue_types import Redriven
from strandline.client.topic_types import TopicState

app = typer.Typer(name="queue", no_args_is_help=True, help="Look at the jobs of a queue, and do them.")
app.command("work")(work_command)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]


@app.command("peek")
def peek_command(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=0, max=1000, help="So many jobs.")] = 10,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Only jobs behind this seq.")] = 0,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show how many jobs a queue has, and the first of them by seq, without taking any."""
    with connect(url, key) as client:
        state = _queue(client, name)
        found = client.topic(name, Raw).diff(after, limit=limit).records if limit else []
    jobs = [of_topic(record) for record in found]
    assert state.queue is not None
    if as_json:
        print_json({"queue": name, "jobs": jobs, **_counted(state)})
        return
    for job in jobs:
        print_line(line_of(job))
    print_fields({word.replace("_", " "): count for word, count in _counted(state).items()})


def _counted(state: TopicState) -> dict[str, object]:
    queue = state.queue
    assert queue is not None
    counted = {"ready": queue.ready, "in_flight": queue.in_flight, "delayed": queue.delayed}
    return {**counted, "dead_lettered": queue.dead_lettered, "dead_letter": state.config.dead_letter}


def _queue(client: Client, name: str) -> TopicState:
    state = client.topic(name).state(touch=False)
    if state.queue is None:
        raise CommandFailed(f"{name!r} is no queue", Exit.CONFLICT)
    return state


@app.command("redrive")
def redrive_command(
    name: Annotated[
        str, typer.Argument(metavar="QUEUE", help="The queue, or its dead letters.", autocompletion=complete_queue)
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="Move them here, instead of to where they came from.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="TEXT", help="Only jobs with this key.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Move dead letters back to the queues that they came from, to be tried again."""
    with connect(url, key) as client:
        state = client.topic(name).state(touch=False)
        dead = name if state.queue is None else state.config.dead_letter
        if dead is None:
            raise CommandFailed(
                f"the queue {name!r} has no dead letters: it was made without --dead-letter", Exit.CONFLICT
            )
        match = None if record_key is None else ["tag", "Eq", record_key]
        try:
            done = client.topic(dead).redrive(to=to, limit=limit or 0, match=match)
        except NotFound as error:
            if dead == name or error.detail.get("topic") != dead:
                raise
            # It is made by the first of them.
            done = Redriven(dead, 0, {}, 0)
    if as_json:
        print_json({"dead_letters": dead, "redriven": done.redriven, "to": done.to, "remaining": done.remaining})
        return
    places = ", ".join(f"{count} to {place}" for place, count in done.to.items())
    print_line(
        f"moved {counted(done.redriven, 'job')}{f' ({places})' if places else ''}, {done.remaining} remain in {dead}"
    )
