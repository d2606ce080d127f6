"""The tables, a function each, as markdown: medians, the lowest and highest round in brackets,
ratios to the peer of the same run."""

from . import results
from .figures import MEMORY, PEER, POWER, PROCESS, ratio, thousands


def markdown(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spread(measure, show):
    return f"{show(measure.median)} ({show(measure.low)}..{show(measure.high)})"


def milliseconds(figure):
    return f"{figure:.1f}"


def megabytes(figure):
    return f"{figure / 1e6:.0f}"


def writes():
    rows = []
    for runs in (1, 16, 100):
        peer = results.writes(PEER, runs)
        ours = [results.writes(kind, runs) for kind in (PROCESS, POWER, MEMORY)]
        rows.append(
            [str(runs), spread(peer, thousands)]
            + [f"{spread(measure, thousands)}, {ratio(measure, peer)}" for measure in ours]
        )
    return markdown(
        ["runs at once", "axum `Sse`, no journal", "`process`", "`power`", "`memory:`"], rows
    )


def fanout():
    rows = []
    for kind in (PEER, PROCESS):
        p50, p99 = (
            spread(results.fanout(kind, percentile), milliseconds) for percentile in ("p50", "p99")
        )
        row = next(
            row for row in results.load("gateway")["fanout"]["results"] if row["kind"] == kind
        )
        rows.append([kind, p50, p99, f"{row['server_cpu_seconds']['median']:.2f}"])
    return markdown(
        ["write to receipt, 1,000 viewers", "p50, ms", "p99, ms", "server's processor seconds"],
        rows,
    )


def replay():
    replay = results.load("gateway")["replay"]
    ours, static = (
        results.measure(replay[f"{name}_mb_per_second"]) for name in ("replay", "static")
    )
    show = lambda figure: f"{figure:.0f}"
    rows = [
        ["static body, axum", spread(static, show), ""],
        [PROCESS, spread(ours, show), ratio(ours, static)],
    ]
    return markdown([f"{replay['packets']:,} packets from the journal", "MB/s", "ratio"], rows)


def resume():
    rows = [
        [
            f"{row['state']}, {row['place']}",
            spread(results.measure(row["microseconds"]), lambda figure: f"{figure:.0f}"),
            f"{row['ratio_to_short']:.2f}x",
        ]
        for row in results.load("gateway")["resume"]["results"]
    ]
    return markdown(["first replayed byte of a resume", "µs", "to a stream of 100"], rows)


def memory():
    names = {
        "stalled": "1,000 viewers that never read, 60 MB written",
        "idle": "10,000 idle viewers",
        "idle_peer": "10,000 idle viewers, axum `Sse`",
    }
    found = results.load("gateway")["memory"]
    rows = [
        [name, *(megabytes(found[key][what]) for what in ("before", "after", "growth"))]
        for key, name in names.items()
    ]
    return markdown(["resident memory of the server, MB", "before", "after", "growth"], rows)


def decode():
    rows = []
    for case in ("tokens", "mixed", "4 kB"):
        found = results.decode("pipeline", case, "1400 B chunks")
        ours = found["capstan"]
        peers = [name for name in found if name != "capstan"]
        rows.append(
            [case, spread(ours, thousands)]
            + [f"{thousands(found[name].median)}, {ratio(ours, found[name])}" for name in peers]
        )
    return markdown(
        ["packets per second", "capstan", *(f"{name}; capstan is" for name in peers)], rows
    )


def clients():
    found = results.clients()
    rows = [
        [name, spread(measure, thousands), ratio(found["capstan"], measure)]
        for name, measure in found.items()
    ]
    return markdown(["packets per second, from a socket", "median", "capstan is"], rows)


def python():
    rows = []
    for kind in ("typed", "text"):
        for world in ("sync", "async"):
            found = results.python(kind, world)
            ours, literal = found["coreason_client"], found["literal"]
            rows.append(
                [
                    f"{kind}, {world}",
                    spread(ours, thousands),
                    spread(literal, thousands),
                    ratio(ours, literal),
                ]
            )
    return markdown(
        ["packets per second", "`coreason_client`", "httpx + pydantic, literally", "ratio"], rows
    )


def upstream():
    rows = []
    for row in results.load("upstream")["results"]:
        ways = [
            spread(results.measure(row[f"{way}_ms"]), lambda figure: f"{figure:.2f}")
            for way in ("direct", "memory", "disk")
        ]
        rows.append(
            [
                f"{row['what']}, {row['percentile']}, {row['streams']} streams",
                *ways,
                f"{row['memory_adds_ms']:+.2f}",
                f"{row['disk_adds_ms']:+.2f}",
            ]
        )
    return markdown(
        [
            "ms",
            "provider alone",
            "through `memory:`",
            "through `disk:`",
            "`memory:` adds",
            "`disk:` adds",
        ],
        rows,
    )


def size():
    """What an operator sizes a machine by."""
    gateway = results.load("gateway")
    memory, replay = gateway["memory"], gateway["replay"]
    idle, stalled = memory["idle"], memory["stalled"]
    slowest, fastest = results.writes(POWER, 1).median, results.writes(PROCESS, 100).median
    rows = [
        [
            "memory of an idle viewer",
            f"{idle['bytes_per_viewer'] / 1e3:.0f} KB ({idle['viewers']:,} viewers: "
            f"{megabytes(idle['growth'])} MB)",
        ],
        [
            "memory of a viewer that has stopped reading",
            f"{stalled['growth'] / stalled['readers'] / 1e3:.0f} KB",
        ],
        [
            "a packet of one token, as it is sent",
            f"{replay['bytes'] / replay['packets']:.0f} bytes",
        ],
        [
            "packets a second",
            f"{thousands(slowest)} (one run, `power`) to {thousands(fastest)} (100 runs, "
            f"`process`), viewers on the same two cores",
        ],
    ]
    return markdown(["what", "how much"], rows).replace("---:", "---")


def environment():
    """The machine of the gateway's run; the results name it for each."""
    found = results.load("gateway")["environment"]
    return (
        f"{found['cores']} virtual cores ({found['cpu']}), Linux "
        f"{found['kernel'].split('-')[0]}, {' '.join(found['rustc'].split()[:2])}, load "
        f"{found['load']} when the gateway's run began.\n"
    )


DISK, PG, PG_POWER, PG_THREE = (
    "disk:, process",
    "postgres:, process",
    "postgres:, power",
    "postgres:, process, three gateways",
)


def cluster_writes():
    rows = []
    found = results.cluster("writes")["results"]
    for runs in sorted({row["runs"] for row in found}):
        of = {
            row["kind"]: results.measure(row["writes_per_second"])
            for row in found
            if row["runs"] == runs
        }
        others = [
            f"{spread(of[kind], thousands)}, {ratio(of[kind], of[DISK])}"
            for kind in (PG, PG_POWER, PG_THREE)
        ]
        rows.append([f"{runs:,}", spread(of[DISK], thousands), *others])
    return markdown(
        [
            "runs at once",
            "`disk:`, `process`",
            "PostgreSQL, `process`",
            "PostgreSQL, `power`",
            "three gateways, `process`",
        ],
        rows,
    )


def cluster_cost():
    """Processor time of one write, of gateways and of the database."""
    rows = []
    found = results.cluster("writes")["results"]
    for kind in (DISK, PG, PG_POWER, PG_THREE):
        of = {row["runs"]: row for row in found if row["kind"] == kind}
        cell = lambda row: " + ".join(
            f"{row[f'{who}_cpu_microseconds_per_write']['median']:.1f}"
            for who in ("gateways", "server")
        )
        rows.append([kind, *(cell(of[runs]) for runs in sorted(of))])
    heads = [f"{runs:,} run{'s' * (runs > 1)}" for runs in sorted({row["runs"] for row in found})]
    return markdown(["processor µs a write, gateways + PostgreSQL", *heads], rows)


def cluster_delivery():
    show = lambda figure: f"{figure:.2f}"
    rows = [
        [
            row["what"],
            row["kind"],
            *(
                spread(results.measure(row[f"{percentile}_ms"]), show)
                for percentile in ("p50", "p99")
            ),
        ]
        for row in results.cluster("delivery")["results"]
    ]
    return markdown(
        ["200 streams of 50 tokens a second", "journal", "p50, ms", "p99, ms"], rows
    ).replace("| --- | ---: |", "| --- | --- |", 1)


def cluster_claims():
    found = results.cluster("claims")["results"]
    rows = []
    for at_once in sorted({row["at_once"] for row in found}):
        of = {
            row["kind"]: results.measure(row["claims_per_second"])
            for row in found
            if row["at_once"] == at_once
        }
        rows.append(
            [str(at_once), *(spread(of[kind], lambda rate: f"{rate:,.0f}") for kind in (DISK, PG))]
        )
    return markdown(["claims at once", "`disk:`, a second", "PostgreSQL, a second"], rows)


def cluster_room():
    show = lambda bytes: "" if bytes is None else megabytes(bytes)
    rows = [
        [
            f"{row['kind']}, {row['way']}",
            *(show(row[what]) for what in ("disk", "index", "log", "memory")),
        ]
        for row in results.cluster("room")["results"]
    ]
    return markdown(
        [
            "a million packets of 150 bytes, MB",
            "on disk",
            "of it index",
            "server's log (WAL)",
            "most memory of the gateway",
        ],
        rows,
    )


def cluster_death():
    found = results.cluster("death")
    seconds = results.measure(found["seconds"])
    return (
        f"From `kill -9` to `run_interrupted` at a viewer elsewhere, with the lease of "
        f"{found['lease_seconds']} s: {seconds.median:.1f} s "
        f"({seconds.low:.1f}..{seconds.high:.1f}).\n"
    )


def cluster_environment():
    parts = results.load("cluster")["parts"]
    found = parts["writes"]["environment"]
    loads = ", ".join(f"{part} {row['environment']['load']}" for part, row in parts.items())
    return (
        f"{found['cores']} virtual cores ({found['cpu']}) for everything: gateways, clients and "
        f"PostgreSQL {found['postgresql'].split()[0]} with its defaults, `fsync` on, over a "
        f"unix socket. Load of the machine when each part began: {loads}.\n"
    )


def console():
    """A gateway whose console is open, beside one that nobody looks at."""
    found = results.load("console")["figures"]
    rows = []
    for name, figure, show in (
        ("packets a second, 100 runs", "packets_per_second", thousands),
        ("processor µs a packet", "cpu_microseconds_per_packet", lambda micros: f"{micros:.2f}"),
        ("runs started a second", "starts_per_second", lambda rate: f"{rate:.0f}"),
        ("processor µs a start", "cpu_microseconds_per_start", lambda micros: f"{micros:.0f}"),
    ):
        closed, opened, pairs = (
            results.measure(found[figure][case]) for case in ("closed", "open", "ratio")
        )
        low, high = found[figure]["middle_half"]
        rows.append(
            [
                name,
                spread(closed, show),
                spread(opened, show),
                f"{pairs.median:.3f}x ({low:.3f}..{high:.3f})",
            ]
        )
    return markdown(["", "nobody looks", "three pages open", "ratio of a pair (middle half)"], rows)


def peers_deliver():
    found = results.peers("deliver")
    ours = [row["tokens_per_second"] for name, row in found.items() if name.startswith("capstan")]
    rows = []
    for name, row in found.items():
        rate, is_ours = row["tokens_per_second"], name.startswith("capstan")
        ratios = ["", ""] if is_ours else [ratio(our, rate) for our in ours]
        rows.append(
            [
                name,
                spread(rate, thousands),
                *ratios,
                f"{row['cpu_seconds_per_million'].median:.1f}",
                megabytes(row["resident_bytes"].median),
            ]
        )
    return markdown(
        [
            "100 runs of 2,000 tokens",
            "tokens/s",
            "an agent in capstan is",
            "an `openai` agent is",
            "processor s per million",
            "MB",
        ],
        rows,
    )


def peers_resume():
    rows = [
        [name, *(spread(row[figure], lambda ms: f"{ms:.2f}") for figure in ("p50_ms", "p99_ms"))]
        for name, row in results.peers("resume").items()
    ]
    return markdown(["resume to the first token", "p50, ms", "p99, ms"], rows)


def peers_fanout():
    rows = [
        [
            name,
            *(spread(row[figure], milliseconds) for figure in ("p50_ms", "p99_ms")),
            spread(row["cpu_seconds"], lambda s: f"{s:.2f}"),
        ]
        for name, row in results.peers("fanout").items()
    ]
    return markdown(
        ["sending to receipt, 1,000 viewers", "p50, ms", "p99, ms", "processor s in 4 s"], rows
    )


def peers_idle():
    rows = [
        [name, megabytes(row["before_bytes"].median), spread(row["after_bytes"], megabytes)]
        for name, row in results.peers("idle").items()
    ]
    return markdown(["resident memory, MB", "before", "with 10,000 idle viewers"], rows)


def peers_gateways():
    found, held = results.peers("gateways"), results.held()
    alone = found["provider alone"]
    rows = []
    for name, row in found.items():
        figures = ("first_p50_ms", "first_p99_ms", "token_p50_ms", "token_p99_ms")
        added = [
            spread(row[figure], lambda ms: f"{ms:.2f}")
            if row is alone
            else f"{row[figure].median - alone[figure].median:+.2f}"
            for figure in figures
        ]
        rest = (
            ["", ""]
            if row is alone
            else [f"{row['cpu_seconds_per_million'].median:.0f}", f"{held[name].median:,}"]
        )
        rows.append([name, *added, *rest])
    return markdown(
        [
            "10 streams of 50 tokens/s, ms",
            "first token, p50",
            "p99",
            "token, p50",
            "p99",
            "processor µs a token",
            "streams held",
        ],
        rows,
    )


def peers_versions():
    found = results.load("peers")
    loads = ", ".join(
        f"{part} {row['environment']['load']}" for part, row in found["parts"].items()
    )
    versions = ", ".join(
        f"`{name}` {version}" for name, version in sorted(found["versions"].items())
    )
    return f"{versions}. Load of the machine when each part began: {loads}.\n"


def if_measured(table, *parts, picture=""):
    """The table and its picture, once these parts were run: the peers are measured only when they
    are asked for."""
    return lambda: picture + table() if results.has_peers(*parts) else "Not measured yet.\n"


PEERS = "![Tokens per second, delivered: 100 runs of 2,000](pictures/peers.svg)\n\n"
HELD = "![Streams of 50 tokens a second that a gateway holds](pictures/held.svg)\n\n"


TABLES = {
    "cluster-writes": cluster_writes,
    "cluster-cost": cluster_cost,
    "cluster-delivery": cluster_delivery,
    "cluster-claims": cluster_claims,
    "cluster-room": cluster_room,
    "cluster-death": cluster_death,
    "cluster-environment": cluster_environment,
    "console": console,
    "peers-deliver": if_measured(peers_deliver, "deliver", picture=PEERS),
    "peers-resume": if_measured(peers_resume, "resume"),
    "peers-fanout": if_measured(peers_fanout, "fanout"),
    "peers-idle": if_measured(peers_idle, "idle"),
    "peers-gateways": if_measured(peers_gateways, "gateways", "held", picture=HELD),
    "peers-versions": if_measured(peers_versions),
    "writes": writes,
    "fanout": fanout,
    "replay": replay,
    "resume": resume,
    "memory": memory,
    "decode": decode,
    "clients": clients,
    "python": python,
    "upstream": upstream,
    "environment": environment,
    "size": size,
}
