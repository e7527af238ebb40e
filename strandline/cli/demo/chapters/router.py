"""A router: some of the records of a log go on into another one."""

from __future__ import annotations

from strandline.cli.demo.server import Broken
from strandline.cli.demo.shop import Shipment
from strandline.cli.demo.stage import SHIPMENTS, Stage
from strandline.client import Client, Draft

PARCELS = 200
ROUTER, CITY, DESTINATION = "shipments->graz", "Graz", "shipments:graz"


def route_to_a_city(stage: Stage) -> None:
    with stage.teller.chapter("A router") as tell, stage.server.client() as client:
        shipments = client.topic(SHIPMENTS, Shipment)
        new = stage.shop.warehouse(PARCELS)
        client.router(ROUTER).configure(SHIPMENTS, DESTINATION, filter=CITY)
        shipments.write_many(Draft(shipment, tag=shipment.city) for shipment in new)
        wanted = [shipment for shipment in new if shipment.city == CITY]
        tell.say(
            f"The courier in {CITY} wants to see parcels for {CITY} and no others. The router `{ROUTER}` copies what "
            f"is tagged {CITY} into a topic of its own: by reference, in order, each exactly once."
        )
        if routed(client) != wanted:
            raise Broken(f"the router has not copied the {len(wanted)} shipments to {CITY}")
        tell.proved(
            f"{len(new)} shipments written, {len(wanted)} of them for {CITY}, {len(wanted)} in `{DESTINATION}`."
        )


def routed(client: Client) -> list[Shipment]:
    return [record.data for record in client.topic(DESTINATION, Shipment).read()]
