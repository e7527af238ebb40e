"""Signed elements, and rows of a table."""

from __future__ import annotations

from strandline.cli.demo.server import Broken
from strandline.cli.demo.stage import Stage
from strandline.client import Forbidden, OwnIdentity
from strandline.signing.keys import KemKey, Signer


def sign_a_delivery(stage: Stage) -> None:
    order = stage.acknowledged[-1].order
    with stage.teller.chapter("A signed delivery note") as tell, stage.server.client() as client:
        courier, stranger = _somebody(), _somebody()
        path = f"deliveries/{courier.user_id}"
        notes = client.collections(courier).document(path, verify=courier.signer.public)
        notes.append({"order": order, "handed over": "at the door"})
        (note,) = client.collections(stranger).document(path, verify=courier.signer.public).pull(full=True).elements
        tell.say(
            f"The courier signs: order {note.data['order']} was handed over {note.data['handed over']}. Whoever reads "
            "the note checks the signature again, and need not take the server's word for it."
        )
        try:
            client.collections(stranger).document(path).append({"order": order, "handed over": "never"})
        except Forbidden:
            tell.proved("The note is the courier's. A stranger who tried to add one was refused.")
        else:
            raise Broken("a stranger could write in the courier's name")


def review_a_lamp(stage: Stage) -> None:
    customer = stage.acknowledged[-1].customer
    with stage.teller.chapter("A row in a table") as tell, stage.server.client(user=customer) as client:
        reviews = client.table("review")
        # Sent twice, as a browser on a bad line would.
        first, again = (
            reviews.append("desk-lamp", {"stars": 3, "text": "a warm light"}, idempotency_key="review-1")
            for _ in range(2)
        )
        reviews.update(first.id, {"stars": 5})
        rows, edits = list(reviews.list("desk-lamp")), reviews.history(first.id)
        if first.id != again.id or len(rows) != 1 or rows[0].payload["stars"] != 5 or len(edits) != 1:
            raise Broken("the review is not there once with its edit")
        tell.say(f"{customer} reviews the desk lamp. The row is typed, can be edited, and is live in every browser.")
        tell.proved(f"Sent twice, it is there once; {edits[0].previous['stars']} stars became 5, and both are known.")


def _somebody() -> OwnIdentity:
    return OwnIdentity(Signer.generate(), KemKey.generate())
