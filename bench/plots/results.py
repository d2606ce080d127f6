"""Reads the results: a median with its spread, whatever shape a bench wrote it in."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent.parent / "results"


@cache
def load(bench):
    return json.loads((RESULTS / f"{bench}.json").read_text())


@dataclass(frozen=True)
class Measure:
    """One figure, measured several times."""

    rounds: tuple

    @property
    def median(self):
        return median(self.rounds)

    @property
    def low(self):
        return min(self.rounds)

    @property
    def high(self):
        return max(self.rounds)

    def map(self, function):
        return Measure(tuple(map(function, self.rounds)))


def measure(found):
    """From `{median, rounds}`, or a list of rounds."""
    return Measure(tuple(found["rounds"] if isinstance(found, dict) else found))


def writes(kind, runs):
    """Delivered agent writes per second."""
    rows = load("gateway")["writes"]["results"]
    return measure(
        next(row for row in rows if (row["kind"], row["runs"]) == (kind, runs))["writes_per_second"]
    )


def fanout(kind, percentile):
    rows = load("gateway")["fanout"]["results"]
    return measure(next(row for row in rows if row["kind"] == kind)[f"{percentile}_ms"])


def decode(layer, case, form):
    """Packets per second by contender."""
    heats = load("decode")["heats"]
    heat = next(
        heat for heat in heats if (heat["layer"], heat["case"], heat["form"]) == (layer, case, form)
    )
    return {
        contender["name"]: Measure(
            tuple(heat["packets"] / nanos * 1e9 for nanos in contender["rounds_ns"])
        )
        for contender in heat["contenders"]
    }


def clients():
    """Packets per second by client."""
    return {
        row["client"]: Measure(
            tuple(round["packets"] / round["seconds"] for round in row["rounds"])
        )
        for row in load("client")["clients"]
    }


def python(kind, world):
    """Packets per second by client."""
    heats = load("python")["heats"]
    heat = next(heat for heat in heats if (heat["kind"], heat["world"]) == (kind, world))
    return {
        name: Measure(tuple(heat["packets"] / second for second in seconds))
        for name, seconds in heat["seconds"].items()
    }


def cluster(part):
    """A part of the bench of many machines; each is measured when it is asked for."""
    return load("cluster")["parts"][part]


def has_peers(*parts):
    """Whether these parts of the peers' bench were run; it is asked for by name and takes long."""
    return (RESULTS / "peers.json").exists() and all(
        part in load("peers")["parts"] for part in parts
    )


def peers(part):
    """The rows of a part by name, each figure a measure."""
    rows = load("peers")["parts"][part]["results"]
    return {
        row["name"]: {
            name: measure(found)
            for name, found in row.items()
            if isinstance(found, dict) and "rounds" in found
        }
        for row in rows
    }


def held():
    """How many streams each gateway holds."""
    return {
        row["name"]: Measure((row["held"],)) for row in load("peers")["parts"]["held"]["results"]
    }
