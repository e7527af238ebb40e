"""A writer to be killed: it appends from several threads to logs of every journaled class.

Every line on its standard output is one acknowledgement, written in one piece before the next append::

    + log seq payload        an append
    - log seq                a delete
    * number                 everything before this journal file has been sealed
"""

from __future__ import annotations

import os
import sys
import threading

from strandline.engine import Batch, Config, Engine, Options

CLASSES = ("fsync", "disk", "memory")
#: Small, so that the sealing process is at work all the time.
OPTIONS = Options(journal_bytes=40_000, flush_interval_ms=5, cache_bytes=1 << 20)


def tell(line: str) -> None:
    os.write(1, line.encode())


def write(engine: Engine, name: str, generation: str, thread: int) -> None:
    log = engine.log(name)
    number = 0
    sealed = engine.maintenance.manifest.boundary
    while True:
        number += 1
        payloads = [f"{generation}.{thread}.{number}.{at}".encode() for at in range(number % 3 + 1)]
        filled = [payload + b"." * (number * 31 % 400) for payload in payloads]
        appended = log.append(Batch(filled, [f"t{thread}"] * len(filled))).wait()
        tell("".join(f"+ {name} {appended.first + at} {p.decode()}\n" for at, p in enumerate(payloads)))
        if number % 10 == 0:
            log.delete(seqs=[appended.first]).wait()
            tell(f"- {name} {appended.first}\n")
        if thread == 0 and sealed != engine.maintenance.manifest.boundary:
            sealed = engine.maintenance.manifest.boundary
            tell(f"* {sealed}\n")


def main() -> None:
    root, generation = sys.argv[1:]
    engine = Engine.open(root, OPTIONS)
    for durability in CLASSES:
        if engine.find(durability) is None:
            engine.create(durability, Config(durability=durability)).wait()
    for thread in range(4):
        name = CLASSES[thread % len(CLASSES)]
        threading.Thread(target=write, args=(engine, name, generation, thread), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
