"""The tables, a function each, as markdown: medians, the lowest and highest round in brackets, ratios to the peer of the same run."""

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
        rows.append([str(runs), spread(peer, thousands)] + [f"{spread(measure, thousands)}, {ratio(measure, peer)}" for measure in ours])
    return markdown(["runs at once", "axum `Sse`, no journal", "`process`", "`power`", "`memory:`"], rows)


def fanout():
    rows = []
    for kind in (PEER, PROCESS):
        p50, p99 = (spread(results.fanout(kind, percentile), milliseconds) for percentile in ("p50", "p99"))
        row = next(row for row in results.load("gateway")["fanout"]["results"] if row["kind"] == kind)
        rows.append([kind, p50, p99, f"{row['server_cpu_seconds']['median']:.2f}"])
    return markdown(["write to receipt, 1,000 viewers", "p50, ms", "p99, ms", "server's processor seconds"], rows)


def replay():
    replay = results.load("gateway")["replay"]
    ours, static = (results.measure(replay[f"{name}_mb_per_second"]) for name in ("replay", "static"))
    show = lambda figure: f"{figure:.0f}"
    rows = [["static body, axum", spread(static, show), ""], [PROCESS, spread(ours, show), ratio(ours, static)]]
    return markdown([f"{replay['packets']:,} packets from the journal", "MB/s", "ratio"], rows)


def resume():
    rows = [
        [f"{row['state']}, {row['place']}", spread(results.measure(row["microseconds"]), lambda figure: f"{figure:.0f}"), f"{row['ratio_to_short']:.2f}x"]
        for row in results.load("gateway")["resume"]["results"]
    ]
    return markdown(["first replayed byte of a resume", "µs", "to a stream of 100"], rows)


def memory():
    names = {"stalled": "1,000 viewers that never read, 60 MB written", "idle": "10,000 idle viewers", "idle_peer": "10,000 idle viewers, axum `Sse`"}
    found = results.load("gateway")["memory"]
    rows = [[name, *(megabytes(found[key][what]) for what in ("before", "after", "growth"))] for key, name in names.items()]
    return markdown(["resident memory of the server, MB", "before", "after", "growth"], rows)


def decode():
    rows = []
    for case in ("tokens", "mixed", "4 kB"):
        found = results.decode("pipeline", case, "1400 B chunks")
        ours = found["capstan"]
        peers = [name for name in found if name != "capstan"]
        rows.append([case, spread(ours, thousands)] + [f"{thousands(found[name].median)}, {ratio(ours, found[name])}" for name in peers])
    return markdown(["packets per second", "capstan", *(f"{name}; capstan is" for name in peers)], rows)


def clients():
    found = results.clients()
    rows = [[name, spread(measure, thousands), ratio(found["capstan"], measure)] for name, measure in found.items()]
    return markdown(["packets per second, from a socket", "median", "capstan is"], rows)


def python():
    rows = []
    for kind in ("typed", "text"):
        for world in ("sync", "async"):
            found = results.python(kind, world)
            ours, literal = found["coreason_client"], found["literal"]
            rows.append([f"{kind}, {world}", spread(ours, thousands), spread(literal, thousands), ratio(ours, literal)])
    return markdown(["packets per second", "`coreason_client`", "httpx + pydantic, literally", "ratio"], rows)


def upstream():
    rows = []
    for row in results.load("upstream")["results"]:
        ways = [spread(results.measure(row[f"{way}_ms"]), lambda figure: f"{figure:.2f}") for way in ("direct", "memory", "disk")]
        rows.append([f"{row['what']}, {row['percentile']}, {row['streams']} streams", *ways, f"{row['memory_adds_ms']:+.2f}", f"{row['disk_adds_ms']:+.2f}"])
    return markdown(["ms", "provider alone", "through `memory:`", "through `disk:`", "`memory:` adds", "`disk:` adds"], rows)


def size():
    """What an operator sizes a machine by."""
    gateway = results.load("gateway")
    memory, replay = gateway["memory"], gateway["replay"]
    idle, stalled = memory["idle"], memory["stalled"]
    slowest, fastest = results.writes(POWER, 1).median, results.writes(PROCESS, 100).median
    rows = [
        ["memory of an idle viewer", f"{idle['bytes_per_viewer'] / 1e3:.0f} KB ({idle['viewers']:,} viewers: {megabytes(idle['growth'])} MB)"],
        ["memory of a viewer that has stopped reading", f"{stalled['growth'] / stalled['readers'] / 1e3:.0f} KB"],
        ["a packet of one token, as it is sent and stored", f"{replay['bytes'] / replay['packets']:.0f} bytes"],
        ["packets a second", f"{thousands(slowest)} (one run, `power`) to {thousands(fastest)} (100 runs, `process`), viewers on the same two cores"],
    ]
    return markdown(["what", "how much"], rows).replace("---:", "---")


def environment():
    """The machine of the gateway's run; the results name it for each."""
    found = results.load("gateway")["environment"]
    return f"{found['cores']} virtual cores ({found['cpu']}), Linux {found['kernel'].split('-')[0]}, {' '.join(found['rustc'].split()[:2])}, load {found['load']} when the gateway's run began.\n"


TABLES = {
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
