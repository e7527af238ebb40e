"""A member of a consumer group in a process of its own: ``python -m support.group_member URL TOPIC NAME JOURNAL``.

Every record that it gets is a line in the journal, which all members share: the member, the seq and the tag. It says on
its standard output when it is ready, and what the server has told it since. SIGTERM ends it. With ``--die-after N`` it
kills itself after N records, and with ``--commit-after N`` it stops itself after N records, and then commits.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from strandline.client import Client, Fenced

#: The records that a member reads at a time, which is how many it can have processed and not committed.
PAGE = 20
#: Long enough for a member that waits for a busy machine, short enough to wait for its end.
LEASE_MS = 3000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("topic")
    parser.add_argument("name")
    parser.add_argument("journal")
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--commit-after", type=int, default=0)
    parser.add_argument("--lease-ms", type=int, default=LEASE_MS)
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    journal = os.open(options.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Client(options.url) as client:
        group = client.topic(options.topic).consumer_group("group")
        with group.join(node=options.name, lease_ms=options.lease_ms, auto_commit=not options.commit_after) as member:
            signal.signal(signal.SIGTERM, lambda *_: member.stop())
            print("ready", flush=True)
            for number, record in enumerate(member.records(size=PAGE), 1):
                os.write(journal, f"{options.name} {record.seq} {record.tag}\n".encode())
                if number == options.die_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                if number == options.commit_after:
                    print("stopping", flush=True)
                    os.kill(os.getpid(), signal.SIGSTOP)
                    try:
                        member.commit()
                    except Fenced as error:
                        print("fenced", error.detail["shares"], flush=True)
                    return
    print("ended", flush=True)


if __name__ == "__main__":
    main()
