"""Counts the packets of one run with the literal client; for the Rust client's bench."""

from __future__ import annotations

import json
import sys
import time

import literal


def resident() -> int:
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def main() -> None:
    packets, start, early = 0, 0.0, 0
    client = literal.CAPClient(sys.argv[1], "sk_...")
    for _ in client.assist(literal.question("Hi")):
        packets += 1
        if packets == 1:
            start, early = time.perf_counter(), resident()
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {"packets": packets, "seconds": seconds, "early_kb": early, "late_kb": resident()}
        )
    )


if __name__ == "__main__":
    main()
