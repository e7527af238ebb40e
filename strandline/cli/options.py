"""The arguments and options that several commands share. Each is declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.connection import complete_log, complete_queue, complete_router

SERVER_PANEL = "Server"
KAFKA_PANEL = "Kafka"
SPARK_PANEL = "Spark"

# --- names ----------------------------------------------------------------------------------------------------------

LogName = Annotated[str, typer.Argument(metavar="LOG", help="Name of the log.", autocompletion=complete_log)]
NewLogName = Annotated[str, typer.Argument(metavar="LOG", help="Name of the new log.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queue)]
RouterName = Annotated[
    str, typer.Argument(metavar="ROUTER", help="Name of the router.", autocompletion=complete_router)
]

# --- the server -----------------------------------------------------------------------------------------------------

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="STRANDLINE_URL",
        help="URL of the server, or of it and its standbys, separated by commas.",
        rich_help_panel=SERVER_PANEL,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        envvar="STRANDLINE_KEY",
        show_envvar=True,
        help="API key, if the server requires one.",
        rich_help_panel=SERVER_PANEL,
    ),
]

# --- output ---------------------------------------------------------------------------------------------------------

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON document per line instead of text.")]

# --- filters --------------------------------------------------------------------------------------------------------

RecordKey = Annotated[str | None, typer.Option("--record-key", "-k", metavar="KEY", help="Only records with this key.")]
KeyPrefix = Annotated[
    str | None, typer.Option("--key-prefix", metavar="PREFIX", help="Only records whose key starts with this prefix.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only records from this time on: a duration before now (1h), ISO 8601, or milliseconds since 1970.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only records before this time, given as for --since.")
]
NamePrefix = Annotated[
    str, typer.Option("--prefix", metavar="PREFIX", help="Only logs whose name starts with this prefix.")
]
LogNames = Annotated[
    list[str] | None, typer.Option("--logs", metavar="LOG", help="Only this log. Repeat the option for more logs.")
]

# --- where logs and lakes are ---------------------------------------------------------------------------------------

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Read this data directory. A server may be running on it."),
]
SourceUrl = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Read from the server at this URL.", rich_help_panel=SERVER_PANEL),
]
Cold = Annotated[
    str,
    typer.Option(
        "--cold", metavar="LOCATION", help="Cold tier of the data directory: a directory or s3://bucket/prefix."
    ),
]
LakeLocation = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="LOCATION",
        help="Location of the lake: a directory or s3://bucket/prefix. Default: `lake` in the data directory.",
    ),
]

# --- Spark ----------------------------------------------------------------------------------------------------------

Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local, spark://host:port, yarn or k8s://host:port.",
        rich_help_panel=SPARK_PANEL,
    ),
]
#: For commands that use Spark only on request, or for much data.
OptionalMaster = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Use Spark with this master: local, spark://host:port, yarn or k8s://host:port. Default: local[*].",
        rich_help_panel=SPARK_PANEL,
    ),
]
UseSpark = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark",
        help="Use Spark, or never use it. Default: use it for much data if it is installed, and with any Spark option.",
        rich_help_panel=SPARK_PANEL,
        show_default=False,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="Use a Spark Connect server instead of a master: sc://host:port.",
        rich_help_panel=SPARK_PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="Spark property, such as spark.driver.memory=4g. Repeat the option for more properties.",
        rich_help_panel=SPARK_PANEL,
    ),
]
Jars = Annotated[
    list[str] | None,
    typer.Option("--jar", metavar="FILE", help="Jar that Spark needs. Repeatable.", rich_help_panel=SPARK_PANEL),
]
Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--packages",
        metavar="PACKAGE",
        help="Maven package that Spark downloads. Repeatable.",
        rich_help_panel=SPARK_PANEL,
    ),
]
ConnectorOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Kafka only: option of Spark's connector, such as kafka.security.protocol=SSL. Repeatable.",
        rich_help_panel=KAFKA_PANEL,
    ),
]
