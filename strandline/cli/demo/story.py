"""The story: which chapter follows which."""

from __future__ import annotations

from strandline.cli.demo.chapters.asking import draw_takings, search_orders
from strandline.cli.demo.chapters.closing import stop_and_verify
from strandline.cli.demo.chapters.crashing import kill_and_recover
from strandline.cli.demo.chapters.following import follow_payments
from strandline.cli.demo.chapters.opening import start_a_server
from strandline.cli.demo.chapters.processing import run_the_pipeline
from strandline.cli.demo.chapters.routing import route_to_a_city
from strandline.cli.demo.chapters.signing import review_a_lamp, sign_a_delivery
from strandline.cli.demo.chapters.trading import trade_for_a_week
from strandline.cli.demo.chapters.working import pack_parcels
from strandline.cli.demo.stage import Stage

CHAPTERS = (
    start_a_server,
    trade_for_a_week,
    follow_payments,
    pack_parcels,
    route_to_a_city,
    kill_and_recover,
    sign_a_delivery,
    review_a_lamp,
    run_the_pipeline,
    search_orders,
    draw_takings,
    stop_and_verify,
)


def tell(stage: Stage) -> None:
    for chapter in CHAPTERS:
        chapter(stage)
