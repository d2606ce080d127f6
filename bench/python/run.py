"""`coreason_client` beside RFC 004's client written literally: same server, one run, the two in
turn.

Prints ratios, writes `bench/results/python.json`. `bench/python/run` builds what it needs and calls
this.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import literal

import coreason_client as ours

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "python.json"

PACKETS = 20_000
ROUNDS = 15
CHUNK = 4096
"""As the network hands it over: a few dozen packets at a time."""


@contextmanager
def server(events_every: int) -> Iterator[str]:
    command = [sys.executable, HERE / "server.py", str(PACKETS), str(events_every), str(CHUNK)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def our_request() -> ours.ServiceRequest:
    context = ours.SessionContext(user_id="bench", session_id=uuid4())
    return ours.ServiceRequest(context=context, payload=ours.AgentRequest(query="Hi"))


def read_typed(packets: Any) -> int:
    """What a caller does: looks at the op and uses the payload."""
    count = 0
    for packet in packets:
        if packet.op == "DELTA":
            count += len(packet.p) > 0
        elif packet.op == "EVENT":
            count += len(packet.p["type"]) > 0
        else:
            count += 1
    return count


async def read_typed_async(packets: Any) -> int:
    count = 0
    async for packet in packets:
        if packet.op == "DELTA":
            count += len(packet.p) > 0
        elif packet.op == "EVENT":
            count += len(packet.p["type"]) > 0
        else:
            count += 1
    return count


async def read_text_async(texts: Any) -> int:
    count = 1  # CLOSE, which a text reader does not see
    async for text in texts:
        count += len(text) > 0
    return count


def contenders(url: str, kind: str, world: str) -> dict[str, Callable[[], int]]:
    ask = literal.question("Hi")
    if world == "sync":
        mine, theirs = ours.CAPClient(url, "sk_bench"), literal.CAPClient(url, "sk_bench")
        if kind == "typed":
            return {
                "coreason_client": lambda: read_typed(mine.assist(our_request())),
                "literal": lambda: read_typed(theirs.assist(ask)),
            }
        return {
            "coreason_client": lambda: 1 + sum(len(text) > 0 for text in mine.chat("Hi")),
            "literal": lambda: 1 + sum(len(text) > 0 for text in theirs.chat("Hi")),
        }

    loop = asyncio.new_event_loop()
    mine_async, theirs_async = (
        ours.AsyncCAPClient(url, "sk_bench"),
        literal.AsyncCAPClient(url, "sk_bench"),
    )
    if kind == "typed":
        return {
            "coreason_client": lambda: loop.run_until_complete(
                read_typed_async(mine_async.assist(our_request()))
            ),
            "literal": lambda: loop.run_until_complete(read_typed_async(theirs_async.assist(ask))),
        }
    return {
        "coreason_client": lambda: loop.run_until_complete(read_text_async(mine_async.chat("Hi"))),
        "literal": lambda: loop.run_until_complete(read_text_async(theirs_async.chat("Hi"))),
    }


def heat(url: str, kind: str, world: str) -> dict[str, Any]:
    runs = contenders(url, kind, world)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(ROUNDS + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            count = run()
            took = time.perf_counter() - started
            assert count == PACKETS, (name, count)
            if round_number:  # the first one warms up
                seconds[name].append(took)
    rates = {name: PACKETS / statistics.median(times) for name, times in seconds.items()}
    fastest = {name: PACKETS / min(times) for name, times in seconds.items()}
    ratio = rates["coreason_client"] / rates["literal"]
    best = fastest["coreason_client"] / fastest["literal"]
    ours, literal = rates["coreason_client"], rates["literal"]
    columns = f"{ours:12,.0f} {literal:12,.0f} {ratio:7.1f}x {best:9.1f}x"
    print(f"{kind:6} {world:6} {columns}", flush=True)
    return {
        "kind": kind,
        "world": world,
        "packets": PACKETS,
        "ratio_of_medians": ratio,
        "ratio_of_fastest": best,
        "packets_per_second": rates,
        "seconds": seconds,
    }


MEMORY = """
import asyncio, sys
import coreason_client as c
url = sys.argv[1]
def rss():
    with open('/proc/self/statm') as f:
        return int(f.read().split()[1]) * 4096
async def aside(client):
    async for _ in client.chat('Hi'): pass
client, other = c.CAPClient(url, ''), c.AsyncCAPClient(url, '')
loop = asyncio.new_event_loop()
marks = []
for n in range(31):
    for _ in client.chat('Hi'): pass
    loop.run_until_complete(aside(other))
    if n % 10 == 0: marks.append(rss())
print(marks)
"""

IMPORT = "import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"


def run_python(source: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, check=True, cwd=HERE
    )
    return done.stdout.decode()


def memory(url: str) -> list[int]:
    marks: list[int] = json.loads(run_python(MEMORY, url))
    print(
        "memory after 1, 11, 21, 31 rounds of 40 000 packets:",
        *(f"{mark / 1e6:.1f} MB" for mark in marks),
    )
    return marks


def import_times() -> dict[str, float]:
    times = {}
    for name in ("coreason_client", "literal"):
        runs = [float(run_python(IMPORT.format(name=name))) for _ in range(11)]
        times[name] = statistics.median(runs)
        print(f"import {name}: {times[name] * 1000:.1f} ms")
    return times


def main() -> None:
    print(f"{'':13} {'ours/s':>12} {'literal/s':>12} {'ratio':>8} {'of fastest':>10}")
    heats = []
    with server(events_every=10) as url:
        heats += [heat(url, "typed", world) for world in ("sync", "async")]
    with server(events_every=0) as url:
        heats += [heat(url, "text", world) for world in ("sync", "async")]
        marks = memory(url)
    versions = {name: importlib.metadata.version(name) for name in ("httpx", "pydantic")}
    environment = {
        "python": platform.python_version(),
        "chunk": CHUNK,
        "rounds": ROUNDS,
        **versions,
    }
    result = {
        "bench": "python",
        "environment": environment,
        "heats": heats,
        "rss_bytes": marks,
        "import_seconds": import_times(),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


main()
