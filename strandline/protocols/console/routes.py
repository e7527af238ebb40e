"""The console as a whole: its routes and its sampling."""

from __future__ import annotations

from strandline.protocols.console.assets import Assets
from strandline.protocols.console.catalogue import Catalogue
from strandline.protocols.console.collections import ConsoleCollections
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.documents import ConsoleDocuments
from strandline.protocols.console.dry_runs import DryRuns
from strandline.protocols.console.fields import Fields
from strandline.protocols.console.keys import ConsoleKeys
from strandline.protocols.console.log_description import LogDescriptions
from strandline.protocols.console.logs import ConsoleLogs
from strandline.protocols.console.matches import ConsoleMatches
from strandline.protocols.console.overview import Overview
from strandline.protocols.console.queues import ConsoleQueues
from strandline.protocols.console.rates import Rates
from strandline.protocols.console.read import ConsoleReads
from strandline.protocols.console.routers import ConsoleRouters
from strandline.protocols.console.sql import ConsoleSql
from strandline.protocols.console.subscriptions import ConsoleSubscriptions
from strandline.protocols.console.tables import ConsoleTables
from strandline.protocols.console.tail import LogTails
from strandline.service.http import NO_STORE, Handler, Route

PAGE = "/console"
ASSET = "/console/{path}"
API = "/console/api"
SESSION = API + "/session"
OVERVIEW = API + "/overview"
HISTORY = API + "/history"
LIVE = API + "/live"
LOGS = API + "/logs"
PREFIXES = API + "/prefixes"
LOG = API + "/log/{name}"
RECORDS = LOG + "/records"
MATCHES = LOG + "/matches"
TAIL = LOG + "/tail"
KEYS = LOG + "/keys"
REMOVAL = LOG + "/removal"
INFERENCE = LOG + "/inference"
DRY_RUN = LOG + "/dry-run"
QUEUES = API + "/queues"
QUEUE = API + "/queue/{name}"
TABLES = API + "/tables"
TABLE = API + "/table/{table}"
PARENTS = TABLE + "/parents"
PARENT = TABLE + "/parent"
FEED = TABLE + "/feed"
ROWS = TABLE + "/rows"
TRASH = TABLE + "/trash"
ROW = TABLE + "/row"
COLLECTIONS = API + "/collections"
COLLECTION = API + "/collection"
DOCUMENTS = API + "/documents"
DOCUMENT = API + "/document/{name}"
ELEMENTS = DOCUMENT + "/elements"
FIELDS = API + "/fields/{name}"
ROUTERS = API + "/routers"
SUBSCRIPTIONS = API + "/subscriptions"
SUBSCRIPTION = API + "/subscription/{id}"
SQL = API + "/sql"
SQL_CANCEL = SQL + "/{id}/cancel"


class ConsoleProtocol:
    def __init__(self, context: ConsoleContext) -> None:
        self.context = context
        self.assets = Assets()
        self.rates = Rates(context.engine)
        self.catalogue = Catalogue(context, self.rates)
        self.routing = ConsoleRouters(context)
        self.overview = Overview(context, self.rates, self.catalogue, self.routing)
        self.listing = ConsoleLogs(context, self.rates, self.catalogue)
        self.describing = LogDescriptions(context, self.rates, self.routing)
        self.reading = ConsoleReads(context)
        self.matching = ConsoleMatches(context)
        self.tailing = LogTails(context)
        self.tables = ConsoleTables(context, self.catalogue)
        self.collections = ConsoleCollections(context, self.catalogue)
        self.documents = ConsoleDocuments(context)
        self.keying = ConsoleKeys(context)
        self.queueing = ConsoleQueues(context, self.catalogue)
        self.fields = Fields(context)
        self.dry_running = DryRuns(context)
        self.subscribing = ConsoleSubscriptions(context)
        self.querying = ConsoleSql(context)

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path=PAGE, handler=self.assets.redirect, public=True),
            Route(method="GET", path=ASSET, handler=self.assets.get, public=True, spans="path"),
            _route(SESSION, self.overview.session, own_access=True),
            _route(OVERVIEW, self.overview.overview, "read"),
            _route(HISTORY, self.overview.history, "read"),
            _route(LIVE, self.overview.live, "read", stream=True),
            _route(LOGS, self.listing.list, "read"),
            _route(PREFIXES, self.listing.prefixes, "read"),
            _route(LOG, self.describing.get, "read"),
            _route(RECORDS, self.reading.get, "read"),
            _route(MATCHES, self.matching.get, "read"),
            _route(TAIL, self.tailing.open, "read", stream=True),
            _route(KEYS, self.keying.keys, "read"),
            _route(REMOVAL, self.keying.removal, "read", "delete"),
            _route(INFERENCE, self.fields.infer, "read"),
            _route(DRY_RUN, self.dry_running.post, "read", method="POST", body="required"),
            _route(QUEUES, self.queueing.queues, "read"),
            _route(QUEUE, self.queueing.queue, "read"),
            _route(TABLES, self.tables.tables, "read"),
            _route(TABLE, self.tables.table, "read"),
            _route(PARENTS, self.tables.parents, "read"),
            _route(FEED, self.tables.feed, "read"),
            _route(PARENT, self.tables.parent, "read"),
            _route(ROWS, self.tables.rows, "read"),
            _route(TRASH, self.tables.trash, "read"),
            _route(ROW, self.tables.row, "read"),
            _route(COLLECTIONS, self.collections.collections, "read"),
            _route(COLLECTION, self.collections.collection, "read"),
            _route(DOCUMENTS, self.collections.documents, "read"),
            _route(DOCUMENT, self.documents.document, "read"),
            _route(ELEMENTS, self.documents.elements, "read"),
            _route(FIELDS, self.fields.get, "read"),
            _route(ROUTERS, self.routing.routers, "read"),
            _route(SUBSCRIPTIONS, self.subscribing.list, "read"),
            _route(SUBSCRIPTION, self.subscribing.get, "read"),
            _route(SQL, self.querying.query, "read", method="POST", body="required"),
            _route(SQL_CANCEL, self.querying.cancel, "read", method="POST"),
        ]

    def begin(self) -> None:
        """Start sampling."""
        self.overview.begin()

    def close(self) -> None:
        """Stop sampling, and cancel queries."""
        self.overview.stop()
        self.querying.close()


def _route(
    path: str,
    handler: Handler,
    *scopes: str,
    method: str = "GET",
    body: str = "none",
    stream: bool = False,
    own_access: bool = False,
) -> Route:
    named = "{name}" in path
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=scopes,
        names=("name",) if named else (),
        body=body,
        stream=stream,
        own_access=own_access,
        any_case=True,
        spans="name" if named else "",
        # Answers describe the current moment, so they must not be cached.
        headers=() if stream else (NO_STORE,),
    )
