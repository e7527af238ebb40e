"""The metrics as Prometheus text.

Every metric starts with ``strandline_`` and is in base units. The metrics that the topics protocol documents have their
documented names as well, as aliases: in the units and with the label ``topic`` of that protocol.

This module writes the series itself, because prometheus-client would write whole numbers as floats ("500.0" instead of
"500"). The metrics of the process come from that library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from platform import python_version
from typing import TYPE_CHECKING

import strandline
from strandline.delivery.queues import QueueFigures
from strandline.engine.follower.follower import FollowerStats
from strandline.engine.replica.replica import ReplicaStats
from strandline.engine.stats import Histogram
from strandline.lake.status import DeclaredStatus
from strandline.server.metrics import (
    CLASSES,
    MAX_ROWS,
    ConsumerSample,
    Indexing,
    LogSample,
    RequestSample,
    RouterSample,
    Sealing,
    Snapshot,
    TableHooks,
    Wal,
    WorkerRow,
)
from strandline.server.pipeline.lake_marks import RetentionLag
from strandline.server.pipeline.supervisor import STATES, PipelineSnapshot
from strandline.server.traces.exporter import ExportStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: The media type of the text.
TEXT_TYPE = b"text/plain; version=0.0.4"

#: The metrics of the topics protocol, by the metric without its prefix that they repeat.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "logs": ("topics",),
    "routers": ("routers",),
    "live_records": ("records_live",),
    "live_bytes": ("bytes_live",),
    "queues": ("queue_topics",),
    "leases": ("queue_leases_in_flight",),
    "live_responses": ("sse_connections",),
    "watch_sessions": ("watch_sessions",),
    "ready": ("ready",),
    "recovery_ratio": ("recovery_progress",),
    "journal_frames_total": ("wal_frames_total",),
    "journal_flushes_total": ("wal_batches_total", "wal_fsyncs_total"),
    "journal_bytes_total": ("wal_bytes_written_total",),
    "journal_files_total": ("wal_rotations_total",),
    "journal_waiting_changes": ("wal_queue_depth",),
    "journal_waiting_changes_peak": ("wal_queue_depth_peak",),
    "journal_read_only": ("wal_read_only",),
    "log_head_seq": ("topic_head_seq",),
    "log_earliest_seq": ("topic_earliest_seq",),
    "log_live_records": ("topic_records_live",),
    "log_live_bytes": ("topic_bytes_live",),
    "log_metrics_truncated": ("topic_metrics_truncated",),
    "queue_ready_jobs": ("topic_queue_ready",),
    "queue_leased_jobs": ("topic_queue_in_flight",),
}


def render_text(snapshot: Snapshot) -> bytes:
    lines: list[str] = []
    for part in (
        _totals(snapshot),
        _journal(snapshot.wal),
        _replica(snapshot.replica),
        _follower(snapshot.follower),
        _sealing(snapshot.sealing),
        _indexing(snapshot.indexing),
        _requests(snapshot.requests),
        _load(snapshot),
        _logs(snapshot.log_rows),
        _routers(snapshot.router_rows),
        _consumers(snapshot.consumer_rows),
        _background(snapshot),
        _traces(snapshot.traces),
        _table_hooks(snapshot.table_hooks),
        _pipeline(snapshot.pipeline, snapshot.time),
        _retained(snapshot.retained),
    ):
        lines.extend(part)
    lines.append("")
    return "\n".join(lines).encode()


def process_text() -> bytes:
    """The memory, processor time and open files of this process, as Prometheus text."""
    # Imported at the first request for metrics in this form.
    from prometheus_client import generate_latest

    return generate_latest(_process_collector())


@cache
def _process_collector() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


# --- the metrics ---------------------------------------------------------------------------------------------------


def _totals(snapshot: Snapshot) -> Iterator[str]:
    version = f'version="{_escape(strandline.__version__)}",python="{python_version()}"'
    yield from _gauges(
        "build_info", "Always 1. The labels are the versions of the server and of Python.", [(version, 1)]
    )
    yield from _gauge("ready", "1 while the server accepts requests, 0 while it starts or stops.", int(snapshot.ready))
    help = "1 while the server is a standby, which accepts no requests."
    yield from _gauge("standby", help, int(snapshot.standby))
    help = "Share of the journal that is replayed, from 0 to 1."
    yield from _gauge("recovery_ratio", help, snapshot.replay_progress)
    yield from _gauge("uptime_seconds", "Time since the server started.", snapshot.uptime_ms / 1000)
    yield from _single("topics_uptime_ms", "gauge", "The uptime in milliseconds.", snapshot.uptime_ms)
    yield from _gauge("logs", "Number of logs of all protocols.", sum(snapshot.topics.values()))
    help, counts = "Number of logs by durability.", [(name, snapshot.topics.get(name, 0)) for name in CLASSES]
    yield from _gauges("logs_by_durability", help, [(f'durability="{name}"', count) for name, count in counts])
    by_class = [(f'class="{name}"', count) for name, count in counts]
    yield from _series("topics_topics_by_class", "gauge", "The same as `strandline_logs_by_durability`.", by_class)
    yield from _gauge("routers", "Number of routers.", snapshot.routers)
    yield from _gauge("live_records", "Number of live records of all logs.", snapshot.records)
    yield from _gauge("live_bytes", "Bytes of the live records of all logs.", snapshot.size)
    yield from _gauge("queues", "Number of queues.", snapshot.queues)
    yield from _gauge("leases", "Number of jobs leased to workers.", snapshot.leases_in_flight)
    yield from _gauge("live_responses", "Number of open event streams and WebSockets.", snapshot.streams)
    yield from _gauge("watch_sessions", "Number of watch sessions.", snapshot.watch_sessions)
    yield from _gauge("connections", "Number of open connections.", snapshot.connections)
    yield from _gauge("connections_limit", "Maximum number of open connections.", snapshot.max_connections)
    help = "Connections refused because too many were open."
    yield from _counter("connections_refused_total", help, snapshot.connections_refused)
    help = "Number of segments that a read found damaged or missing since the server started."
    yield from _gauge("damaged_files", help, snapshot.damaged_files)


def _journal(wal: Wal) -> Iterator[str]:
    yield from _counter("journal_frames_total", "Frames written to the journal.", wal.frames)
    help = "Flushes of the journal. Each makes a group of frames durable."
    yield from _counter("journal_flushes_total", help, wal.fsyncs)
    yield from _counter("journal_bytes_total", "Bytes written to the journal.", wal.bytes_written)
    yield from _counter("journal_files_total", "Journal files started.", wal.rotations)
    yield from _gauge("journal_waiting_changes", "Number of changes that wait for a flush.", wal.queue_depth)
    help = "Maximum number of changes that waited for a flush."
    yield from _gauge("journal_waiting_changes_peak", help, wal.queue_depth_peak)
    help = "Always 0, because the queue of the journal has no bound."
    yield from _single("topics_wal_submit_full_total", "counter", help, 0)
    help = "1 if the journal has failed and the server refuses writes."
    yield from _gauge("journal_read_only", help, int(wal.read_only))
    name, us = "topics_wal_fsync_latency_us", wal.fsync_us
    seconds = Histogram(tuple(bound / 1e6 for bound in us.bounds), us.counts, us.sum / 1e6, us.count)
    yield from _head("strandline_journal_flush_seconds", "histogram", "Duration of a flush of the journal.")
    yield from _histogram("strandline_journal_flush_seconds", "", seconds)
    yield from _head(name, "histogram", "The same as `strandline_journal_flush_seconds`, in microseconds.")
    yield from _histogram(name, "", Histogram(us.bounds, us.counts, round(us.sum), us.count))


def _replica(stats: ReplicaStats | None) -> Iterator[str]:
    if stats is None:
        return
    help = "Term of this server. Each start of a server that writes to the replica begins the next term."
    yield from _gauge("replica_term", help, stats.term)
    yield from _gauge("replica_chunk", "Number of the last chunk in the replica.", stats.chunk)
    yield from _gauge("replica_waiting_bytes", "Bytes of the journal that the replica lacks.", stats.waiting_bytes)
    help = "Records in these bytes that would be lost with the machine: those of logs below `replicated`."
    yield from _gauge("replica_waiting_records", help, stats.waiting_records)
    yield from _gauge("replica_lag_seconds", "Age of the oldest of these bytes.", stats.lag_ms / 1000)
    help = "Number of changes that wait for the replica."
    yield from _gauge("replica_waiting_commits", help, stats.waiting_commits)
    yield from _gauge("replica_waiting_seconds", "Age of the oldest of these changes.", stats.waiting_ms / 1000)
    yield from _counter("replica_chunks_total", "Chunks of the journal that were stored.", stats.chunks)
    yield from _counter("replica_chunk_bytes_total", "Bytes of these chunks.", stats.chunk_bytes)
    help = "Segments and checkpoints that were stored in the replica."
    yield from _counter("replica_objects_total", help, stats.objects)
    yield from _counter("replica_object_bytes_total", "Bytes of these segments and checkpoints.", stats.object_bytes)
    help = "Number of segments that are in the replica and not yet in the data directory, after a takeover."
    yield from _gauge("replica_missing_segments", help, stats.missing_segments)
    help = "1 while the replica cannot be reached and the server refuses writes to `replicated` logs."
    yield from _gauge("replica_away", help, int(stats.away))
    help = "1 if another server has taken over, so that this one refuses all requests."
    yield from _gauge("replica_superseded", help, int(stats.superseded))


def _follower(stats: FollowerStats | None) -> Iterator[str]:
    if stats is None:
        return
    yield from _gauge("follower_term", "Term of the server that this one follows.", stats.term)
    yield from _gauge("follower_chunk", "Number of the last chunk that was read from the replica.", stats.chunk)
    help = "How old the data is: this server has everything that was in the replica this long ago."
    yield from _gauge("follower_lag_seconds", help, stats.lag_ms / 1000)
    yield from _counter("follower_applied_bytes_total", "Bytes of the journal that were applied.", stats.applied_bytes)
    help = "Rounds of housekeeping that were adopted from the leader."
    yield from _counter("follower_states_total", help, stats.states)
    help = "How often all logs were loaded again, because of a new leader or removed chunks."
    yield from _counter("follower_reloads_total", help, stats.reloads)


def _traces(stats: ExportStats | None) -> Iterator[str]:
    if stats is None:
        return
    yield from _counter("traces_spans_sent_total", "Spans that the trace collector took.", stats.sent)
    help = "Spans that were dropped, because the trace collector was away, too slow, or did not take them."
    yield from _counter("traces_spans_dropped_total", help, stats.dropped)
    yield from _gauge("traces_waiting_spans", "Spans that wait for the trace collector.", stats.waiting)


def _sealing(sealing: Sealing) -> Iterator[str]:
    yield from _gauge("unsealed_bytes", "Bytes that are not sealed yet.", sealing.unsealed_bytes)
    yield from _gauge("unsealed_budget_bytes", "Maximum bytes that are not sealed.", sealing.budget_bytes)
    yield from _counter("sealing_rounds_total", "Rounds of sealing.", sealing.rounds)
    yield from _gauge("sealing_round_bytes", "Bytes that the last round sealed.", sealing.round_bytes)
    why = "because too many bytes were not sealed."
    yield from _counter("writes_slowed_total", f"Writes delayed {why}", sealing.slowed)
    yield from _counter("writes_refused_total", f"Writes refused {why}", sealing.refused)


def _indexing(indexing: Indexing) -> Iterator[str]:
    help = "Number of logs whose index files are incomplete or are being merged."
    yield from _gauge("index_waiting_logs", help, indexing.waiting_logs)
    yield from _counter("index_records_total", "Records indexed in the background.", indexing.records)
    yield from _gauge("index_file_bytes", "Bytes of the index files.", indexing.file_bytes)
    help = "Index files that were found damaged and are built again."
    yield from _counter("index_damaged_files_total", help, indexing.damaged)


def _requests(samples: Sequence[RequestSample]) -> Iterator[str]:
    rows = [(f'protocol="{one.protocol}",method="{one.method}",route="{_escape(one.route)}"', one) for one in samples]
    help = "Answers by protocol, method, route and status. The route is empty if nothing exists at the path."
    answers = [
        (f'{labels},status="{status}"', count) for labels, one in rows for status, count in sorted(one.statuses.items())
    ]
    yield from _counters("requests_total", help, answers)
    name = "strandline_request_seconds"
    help = (
        "Time from the complete request to its answer, including the wait of a long poll. "
        "Without live responses and requests that their head alone refuses."
    )
    yield from _head(name, "histogram", help)
    for labels, one in rows:
        if one.seconds.count:
            yield from _histogram(name, labels, one.seconds)


def _load(snapshot: Snapshot) -> Iterator[str]:
    yield from _counter("throttled_total", "Requests refused because the server was busy.", snapshot.throttled)
    yield from _gauge("pressure_ratio", "Pressure on the server, from 0 to 1.", snapshot.pressure)
    workers: list[tuple[str, WorkerRow]] = [(f'class="{_escape(row.name)}"', row) for row in snapshot.workers]
    active, waiting = ([(label, getattr(row, of)) for label, row in workers] for of in ("active", "waiting"))
    yield from _gauges("workers_active", "Number of busy worker threads, by class of work.", active)
    yield from _gauges("workers_waiting", "Number of tasks that wait for a thread, by class.", waiting)
    help = "Requests refused because too many tasks waited for a thread, by class."
    yield from _counters("workers_refused_total", help, [(label, row.refused) for label, row in workers])
    yield from _gauge("unread_bytes", "Bytes that clients have not read yet.", snapshot.unread_bytes)
    yield from _counter("slow_readers_total", "Clients disconnected for not reading.", snapshot.slow_readers)
    help = "Bytes of unfinished WebSocket messages."
    yield from _gauge("unfinished_message_bytes", help, snapshot.unfinished_bytes)
    help = "WebSockets closed because of too many unfinished bytes."
    yield from _counter("refused_sockets_total", help, snapshot.refused_sockets)


def _logs(samples: Sequence[LogSample]) -> Iterator[str]:
    rows = [(f'log="{_escape(row.log)}"', row) for row in samples[:MAX_ROWS]]
    for name, help, of in (
        ("log_head_seq", "Highest assigned seq per log.", "head_seq"),
        ("log_earliest_seq", "First live seq per log.", "earliest_seq"),
        ("log_evict_floor", "Retention removed all records before this seq, per log.", "evict_floor"),
        ("log_live_records", "Number of live records per log.", "records"),
        ("log_live_bytes", "Bytes of the live records per log.", "size"),
    ):
        yield from _gauges(name, help, [(labels, getattr(row, of)) for labels, row in rows])
    help = "Records appended per log since it was created: the same as its highest seq."
    yield from _counters("log_appended_records_total", help, [(labels, row.head_seq) for labels, row in rows])
    help = "Bytes of the records appended per log."
    yield from _counters("log_appended_bytes_total", help, [(labels, row.appended_bytes) for labels, row in rows])
    yield from _queues([(labels, row.queue) for labels, row in rows if row.queue is not None])
    yield from _truncated("log", samples)


def _queues(queues: list[tuple[str, QueueFigures]]) -> Iterator[str]:
    labels = [label for label, _ in queues]
    counters, rates = [row.counters for _, row in queues], [row.rates for _, row in queues]
    for gauge, help, values in (
        ("queue_ready_jobs", "Number of jobs that can be claimed, per queue.", [row.ready for row in counters]),
        ("queue_leased_jobs", "Number of leased jobs, per queue.", [row.in_flight for row in counters]),
        ("queue_delayed_jobs", "Number of delayed jobs, per queue.", [row.delayed for row in counters]),
    ):
        yield from _gauges(gauge, help, list(zip(labels, values, strict=True)))
    oldest = [(label, (row.oldest_ready_ms or 0) / 1000) for label, row in queues]
    yield from _gauges("queue_oldest_ready_seconds", "Age of the oldest ready job, since it became ready.", oldest)
    for counter, help, values in (
        ("queue_claimed_total", "Deliveries of jobs, per queue.", [row.claimed for row in rates]),
        ("queue_completed_total", "Acknowledged jobs, per queue.", [row.completed for row in rates]),
        (
            "queue_dead_lettered_total",
            "Jobs that became dead letters, per queue.",
            [row.dead_lettered for row in counters],
        ),
        (
            "queue_dropped_total",
            "Jobs dropped after their last delivery failed, per queue.",
            [row.dropped for row in counters],
        ),
    ):
        yield from _counters(counter, help, list(zip(labels, values, strict=True)))
    failed = [
        (f'{label},cause="{cause}"', count)
        for label, row in zip(labels, rates, strict=True)
        for cause, count in row.failed.items()
    ]
    yield from _counters("queue_failed_total", "Failed deliveries, per queue and cause.", failed)


def _routers(samples: Sequence[RouterSample]) -> Iterator[str]:
    rows = [(f'router="{_escape(row.router)}"', row) for row in samples[:MAX_ROWS]]
    help = "Number of source records not forwarded yet, per router."
    yield from _gauges("router_lag_records", help, [(label, row.lag) for label, row in rows])
    help = "Records forwarded per router."
    yield from _counters("router_forwarded_total", help, [(label, row.forwarded) for label, row in rows])
    yield from _truncated("router", samples)


def _consumers(samples: Sequence[ConsumerSample]) -> Iterator[str]:
    rows = [(f'log="{_escape(row.topic)}",consumer="{_escape(row.consumer)}"', row.lag) for row in samples[:MAX_ROWS]]
    yield from _gauges("consumer_lag_records", "Number of records after a consumer's position.", rows)
    yield from _truncated("consumer", samples)


def _background(snapshot: Snapshot) -> Iterator[str]:
    tasks = [(f'task="{_escape(task)}"', task) for task in sorted(snapshot.background)]
    failing = [(label, int(task in snapshot.failing)) for label, task in tasks]
    yield from _gauges("background_failing", "1 while the background task fails.", failing)
    failures = [(label, snapshot.background[task]) for label, task in tasks]
    yield from _counters("background_failures_total", "Failures of the background task.", failures)


def _table_hooks(hooks: TableHooks) -> Iterator[str]:
    yield from _gauge("table_hooks_calls", "Number of calls of async hooks that wait or run.", hooks.calls)
    help = "Writes refused because too many calls of async hooks waited."
    yield from _counter("table_hooks_refused_total", help, hooks.refused)
    failures = [
        (f'table="{_escape(table)}",hook="{_escape(hook)}"', count)
        for (table, hook), count in sorted(hooks.failures.items())
    ]
    yield from _counters("table_hooks_failures_total", "Failed calls of async hooks.", failures)


def _retained(lag: RetentionLag) -> Iterator[str]:
    yield from _gauge("retained_logs", "Number of logs that keep records until the lake has them.", lag.logs)
    help = "Records beyond the retention of their log, kept until the lake has them."
    yield from _gauge("retained_held_records", help, lag.held_records)
    yield from _gauge("retained_held_bytes", "Bytes of these records.", lag.held_bytes)
    rows = [(f'log="{_escape(row.log)}"', row) for row in lag.rows]
    help = "Records that are not in the lake, per log that keeps them until then; the logs that lag most."
    yield from _gauges("retained_lag_records", help, [(label, row.lag_records) for label, row in rows])
    help = "Age of the oldest of these records, per log."
    yield from _gauges("retained_lag_seconds", help, [(label, row.lag_seconds) for label, row in rows])


def _pipeline(pipeline: PipelineSnapshot, time: int) -> Iterator[str]:
    states = [(f'state="{state}"', int(pipeline.state == state)) for state in STATES]
    yield from _gauges("pipeline_state", "1 for the current state of the pipeline, 0 for others.", states)
    help = "Number of records that are not in the lake yet."
    yield from _gauge("pipeline_lag_records", help, pipeline.new_records)
    help = "Number of erasures that are not applied to the lake yet."
    yield from _gauge("pipeline_lag_erasures", help, pipeline.new_erasures)
    yield from _counter("pipeline_starts_total", "Starts of the pipeline's process.", pipeline.starts)
    yield from _counter("pipeline_failures_total", "Failures of the pipeline's process.", pipeline.failures)
    status = pipeline.status
    if status is None:
        return
    yield from _counter("pipeline_rounds_total", "Rounds, including failed ones.", status.rounds_total)
    yield from _counter("pipeline_problems_total", "Problems that rounds reported.", status.problems_total)
    records = [(f'stage="{_escape(stage)}"', count) for stage, count in sorted(status.records_total.items())]
    yield from _counters("pipeline_records_total", "Processed records by stage.", records)
    last = status.last_good_round
    if last is not None:
        age = max(0, time - last.end) / 1000
        yield from _gauge("pipeline_last_round_age_seconds", "Seconds since the last successful round.", age)
    if status.declared is not None:
        yield from _declared_tables(status.declared)


def _declared_tables(declared: DeclaredStatus) -> Iterator[str]:
    help = "1 while the project with the declared tables cannot be run as a whole."
    yield from _gauge("declared_project_failing", help, int(declared.error is not None))
    shown = [table for table in declared.tables if table.kind != "temporary_view"][:MAX_ROWS]
    rows = [(f'table="{_escape(table.name)}"', table) for table in shown]
    help = "Records that a declared table has not processed; for tables that it reads, files or commits."
    lags = [(label, table.lag) for label, table in rows if table.lag is not None]
    yield from _gauges("declared_table_lag_records", help, lags)
    failing = [(label, int(table.error is not None)) for label, table in rows]
    yield from _gauges("declared_table_failing", "1 while the declared table fails and is tried again.", failing)


def _truncated(what: str, rows: Sequence[object]) -> Iterator[str]:
    help = f"1 if there are more than {MAX_ROWS} {what}s and only the first {MAX_ROWS} have series."
    yield from _gauge(f"{what}_metrics_truncated", help, int(len(rows) > MAX_ROWS))


# --- the format ----------------------------------------------------------------------------------------------------


def _gauge(name: str, help: str, value: float) -> Iterator[str]:
    yield from _single(f"strandline_{name}", "gauge", help, value)
    yield from _aliases(name, "gauge", [("", value)])


def _counter(name: str, help: str, value: float) -> Iterator[str]:
    yield from _single(f"strandline_{name}", "counter", help, value)
    yield from _aliases(name, "counter", [("", value)])


def _gauges(name: str, help: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield from _series(f"strandline_{name}", "gauge", help, values)
    yield from _aliases(name, "gauge", values)


def _counters(name: str, help: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield from _series(f"strandline_{name}", "counter", help, values)
    yield from _aliases(name, "counter", values)


def _aliases(name: str, type: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    """The same values under the names of the topics protocol, which calls a log a topic."""
    for alias in ALIASES.get(name, ()):
        help = f"The same as `strandline_{name}`."
        if values and not values[0][0]:
            yield from _single(f"topics_{alias}", type, help, values[0][1])
        else:
            values = [(labels.replace('log="', 'topic="', 1), value) for labels, value in values]
            yield from _series(f"topics_{alias}", type, help, values)


def _head(name: str, type: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {type}"


def _single(name: str, type: str, help: str, value: float) -> tuple[str, str, str]:
    return *_head(name, type, help), f"{name} {_number(value)}"


def _series(name: str, type: str, help: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield from _head(name, type, help)
    for labels, value in values:
        yield f"{name}{{{labels}}} {_number(value)}"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    before, alone = (f"{labels},", f"{{{labels}}}") if labels else ("", "")
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f'{name}_bucket{{{before}le="{"+Inf" if bound == inf else _number(bound)}"}} {count}'
    yield f"{name}_sum{alone} {_number(histogram.sum)}"
    yield f"{name}_count{alone} {histogram.count}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text
