"""The pictures, a function each."""

from . import results
from .svg import Bar, Chart

PEER, PROCESS, POWER, MEMORY = (
    "axum Sse, no journal",
    "capstan disk:, process",
    "capstan disk:, power",
    "capstan memory:",
)
NODE = "Node, by hand"


def thousands(figure):
    return f"{figure / 1e6:.2f} M" if figure >= 1e6 else f"{figure / 1e3:.0f} k"


def ratio(measure, peer):
    times = measure.median / peer.median
    return f"{times:.0f}x" if times >= 10 else f"{times:.2f}x"


def bars(measures, peer, ours, show=thousands):
    """A bar for each measure; all but the peer say how they compare with it."""
    return [
        Bar(
            name,
            measure,
            show(measure.median)
            + ("" if name == peer else f"  ({ratio(measure, measures[peer])})"),
            name in ours,
        )
        for name, measure in measures.items()
    ]


def writes():
    kinds = [PEER, PROCESS, MEMORY]
    groups = {
        f"{runs} run{'s' if runs > 1 else ''} at once": bars(
            {kind: results.writes(kind, runs) for kind in kinds}, PEER, kinds[1:]
        )
        for runs in (1, 16, 100)
    }
    return Chart(
        "Delivered agent writes per second",
        "one viewer a run; every packet of capstan disk: is in the journal before it is sent; "
        "longer is better",
        groups,
    )


def fanout():
    groups = {
        percentile: bars(
            {kind: results.fanout(kind, percentile) for kind in (PEER, PROCESS)},
            PEER,
            [PROCESS],
            lambda ms: f"{ms:.1f} ms",
        )
        for percentile in ("p50", "p99")
    }
    return Chart(
        "One live stream to 1,000 viewers: from write to receipt",
        "fifty packets a second, two cores for server and viewers; shorter is better",
        groups,
    )


def clients():
    rust = results.decode("pipeline", "tokens", "1400 B chunks")
    sockets = results.clients()
    groups = {
        "SSE bytes to typed packets": bars(rust, "sse-stream + serde", ["capstan"]),
        "the whole client, from a socket": bars(
            sockets, "eventsource-client", ["capstan", "capstan-blocking"]
        ),
        "Python, typed packets, sync": bars(
            results.python("typed", "sync"), "literal", ["coreason_client"]
        ),
        "Python, text, sync": bars(results.python("text", "sync"), "literal", ["coreason_client"]),
    }
    return Chart(
        "Token-sized packets per second",
        "literal: RFC 004's client with httpx and pydantic; longer is better",
        groups,
    )


def peers():
    measures = {name: row["tokens_per_second"] for name, row in results.peers("deliver").items()}
    ours = [name for name in measures if name.startswith("capstan")]
    return Chart(
        "Tokens per second, delivered: 100 runs of 2,000",
        "one viewer a run; the ratio is to Node by hand, which keeps nothing; longer is better",
        {"": bars(measures, NODE, ours)},
    )


def held():
    measures = results.held()
    ours = [name for name in measures if name.startswith("capstan")]
    groups = {
        "": [
            Bar(name, measure, f"{measure.median:,}", name in ours)
            for name, measure in measures.items()
        ]
    }
    return Chart(
        "Streams of 50 tokens a second that a gateway holds",
        "at most 50 ms added to 99 of 100 tokens, provider and callers on the same two cores; "
        "longer is better",
        groups,
    )


FIGURES = {"writes": writes, "fanout": fanout, "clients": clients}
FIGURES |= {"peers": peers} if results.has_peers("deliver") else {}
FIGURES |= {"held": held} if results.has_peers("held") else {}
