"""The conformance vectors and the machine's traces, with the same verdicts in every language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coreason_client import (
    CAPConnectionError,
    CAPError,
    CAPProtocolError,
    CAPRuntimeError,
    CAPValidationError,
    _core,
)
from coreason_client._model import Model
from coreason_client.assistant import AssistantMessage, ResultMessage, parse_frame

VECTORS = Path(__file__).resolve().parents[3] / "vectors"


def lines(name: str) -> list[dict[str, Any]]:
    text = (VECTORS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def is_strict(case: dict[str, Any]) -> bool:
    tags = case.get("tags", [])
    return not case.get("lax") and not any(t.startswith("quirk:") or t == "bigint" for t in tags)


def same(expected: Any, found: Any) -> bool:
    """Numbers by value, a missing member equals null, placeholders match anything."""
    if expected in ("<uuid>", "<now>") and isinstance(found, str):
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(same(expected.get(name), found.get(name)) for name in {*expected, *found})
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    return bool(expected == found)


def verdict(case: dict[str, Any], text: str) -> str | None:
    try:
        found = json.loads(_core.check(case["profile"], case["model"], text))
    except ValueError as error:
        return f"{case['id']}: refused ({error}), but {case['why']}" if case["accept"] else None
    if not case["accept"]:
        return f"{case['id']}: accepted, but {case['why']}"
    return None if same(case["canonical"], found) else f"{case['id']}: {found}"


def model_cases() -> Iterator[dict[str, Any]]:
    return (
        case
        for case in lines("cap/models.jsonl")
        if is_strict(case) and case["model"] != "SSE-from-packet"
    )


def test_every_strict_model_case_gets_the_references_verdict() -> None:
    cases = list(model_cases())
    wrong = [v for case in cases if (v := verdict(case, json.dumps(case["input"])))]
    assert len(cases) >= 1600 and not wrong, wrong


def test_every_strict_text_case_gets_the_references_verdict() -> None:
    cases = [case for case in lines("cap/text.jsonl") if is_strict(case)]
    wrong = [v for case in cases if (v := verdict(case, case["raw"]))]
    assert len(cases) >= 60 and not wrong, wrong


def classes() -> dict[str, Any]:
    import coreason_client.definitions.message
    import coreason_client.definitions.presentation
    import coreason_client.definitions.service

    def below(kind: type[Model]) -> Iterator[type[Model]]:
        yield kind
        for sub in kind.__subclasses__():
            yield from below(sub)

    models = {kind._name: kind for kind in below(Model) if hasattr(kind, "_name")}
    return {**models, "StreamPacket": coreason_client.definitions.presentation.StreamPacket}


def test_the_classes_judge_as_the_models_do() -> None:
    known = classes()
    cases = [case for case in model_cases() if case["profile"] == "v1" and case["model"] in known]
    wrong = []
    for case in cases:
        # Packets hold a seq that is not negative and nest as deep as we read; the reference knows
        # neither limit.
        try:
            found = known[case["model"]].from_dict(case["input"]).to_dict()
        except (ValueError, RecursionError) as error:
            limit = "nested" in str(error) or "seq" in str(error)
            if case["accept"] and not limit:
                wrong.append((case["id"], str(error)))
            continue
        if not case["accept"] or not same(case["canonical"], found):
            wrong.append((case["id"], found))
    assert len(cases) > 600 and not wrong, wrong[:5]


# Machine traces.


def spelled(action: tuple[str, Any]) -> Any:
    what, value = action
    if what == "connect":
        return {"connect": {"last_event_id": value}}
    if what == "wait":
        return {"wait": {"until": round(value * 1000)}}
    if what == "packet":
        return {"packet": value.to_dict()}
    if what == "notice":
        if isinstance(value, dict) and "retrying" in value:
            value = {"retrying": {"wait": round(value["retrying"]["wait"] * 1000)}}
        return {"notice": value}
    if what == "fail":
        return {"fail": failure(value)}
    return what


def failure(error: CAPError) -> dict[str, Any]:
    if isinstance(error, CAPConnectionError):
        return {"kind": "connection", "retries": error.retries}
    if isinstance(error, CAPProtocolError):
        return {"kind": "protocol"}
    assert isinstance(error, CAPRuntimeError)
    return {
        "kind": "runtime",
        "status": error.status,
        "code": error.code,
        "severity": error.severity,
        "retry_after": error.retry_after,
        "is_retryable": error.is_retryable,
    }


def machine_of(trace: dict[str, Any]) -> _core.Machine:
    policy = trace["policy"]
    settings = {
        "read_timeout": None,
        "connect_timeout": None,
        "max_retries": policy["max_retries"],
        "max_wait": policy["max_wait"] / 1000,
        "resume_patience": policy["resume_patience"] / 1000,
        "backoff_first": policy["backoff_first"] / 1000,
        "backoff_max": policy["backoff_max"] / 1000,
        "least_wait": 0.1,
        "deadline": None,
        "strict": policy["strict"],
        "profile": policy["profile"],
        "path": "",
        "headers": [],
    }
    return _core.Machine(
        settings,
        last_event_id=trace["last_event_id"],
        viewer=policy["viewer"],
        jitter=False,
        seed=1,
    )


def tell(machine: _core.Machine, event: Any, now: float) -> None:
    if event == "ended":
        return machine.ended(now)
    for what, value in (event or {}).items():
        if what == "opened":
            machine.opened(value["status"], value["content_type"])
        elif what == "refused":
            machine.refused(value["status"], value["retry_after"], value["body"].encode(), now)
        elif what == "bytes":
            machine.bytes(value.encode())
        elif what == "failed":
            machine.failed(value, now)


@pytest.mark.parametrize("trace", lines("machine/traces.jsonl"), ids=lambda trace: trace["name"])
def test_the_machine_does_what_its_trace_says(trace: dict[str, Any]) -> None:
    machine = machine_of(trace)
    for step in trace["steps"]:
        now = step["now"] / 1000
        tell(machine, step["in"], now)
        out = []
        while True:
            action = machine.poll(now)
            out.append(spelled(action))
            if action[0] not in ("packet", "notice", "fail"):
                break
        assert same(step["out"], out), (step, out)


# Assistant frames (ADR 0004).


def word(error: Any) -> str | None:
    """A value that is no string stays JSON text."""
    return (
        error
        if error is None or isinstance(error, str)
        else json.dumps(error, separators=(",", ":"))
    )


def test_assistant_lines_and_frames_get_the_references_verdict() -> None:
    wrong = []
    for case in lines("claude/lines.jsonl"):
        try:
            frame = parse_frame(case["line"])
            outcome = "frame" if frame is not None else "noise"
        except CAPValidationError as error:
            # These cases judge the line alone; an object that lacks a member is a line all the
            # same.
            frame, outcome = None, "frame" if error.path else "broken"
        if (outcome == "frame") != (case["outcome"] == "frame"):
            wrong.append((case["id"], outcome, case["outcome"]))
        elif isinstance(frame, AssistantMessage) and case.get("error", frame.error) != frame.error:
            wrong.append((case["id"], frame.error))
    for case in lines("claude/frames.jsonl"):
        if not isinstance(case["input"], dict):
            continue  # as a line, what does not begin like an object is noise
        try:
            frame = parse_frame(json.dumps(case["input"]))
        except ValueError as error:
            if case["accept"]:
                wrong.append((case["id"], str(error)))
            continue
        if not case["accept"]:
            wrong.append((case["id"], frame))
        elif isinstance(frame, AssistantMessage) and word(case.get("error")) != frame.error:
            wrong.append((case["id"], frame.error, case.get("error")))
    assert not wrong, wrong[:10]


def test_a_transcript_shows_its_errors() -> None:
    text = (VECTORS / "claude/transcripts/rate_limited.jsonl").read_text(encoding="utf-8")
    frames = [frame for line in text.splitlines() if (frame := parse_frame(line)) is not None]
    errors = [
        frame.error for frame in frames if isinstance(frame, AssistantMessage) and frame.error
    ]
    assert "rate_limit" in errors
    assert any(isinstance(frame, ResultMessage) and frame.is_error for frame in frames)
