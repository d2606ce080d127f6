"""An agent that is built with the official Python SDK of A2A, behind the real binary."""

import asyncio
import json
import re
import socket
import subprocess
import threading

import pytest
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette

from conftest import BINARY
from cutting_proxy import CuttingProxy, after_bytes


class Talker(AgentExecutor):
    """An agent that sends a given answer."""

    def __init__(self):
        self.canceled = threading.Event()

    async def execute(self, context, queue):
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        text = context.get_user_input()
        if context.current_task is None:
            await queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        await updater.start_work(updater.new_agent_message([Part(text="Thinking")]))
        if text == "fail":
            return await updater.failed(
                updater.new_agent_message([Part(text="The lab burnt down.")])
            )
        if text == "hang":
            return await asyncio.Event().wait()
        if text == "ask":
            return await updater.requires_input(
                updater.new_agent_message([Part(text="Which colour?")])
            )
        for n in range(20):
            await updater.add_artifact(
                [Part(text=f"{text}{n} ")], artifact_id="answer", append=n > 0
            )
            await asyncio.sleep(0.01)
        await updater.complete()

    async def cancel(self, context, queue):
        self.canceled.set()
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


class Foreign:
    """The SDK's server on its own port, in both versions."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.talker = Talker()
        card = AgentCard(
            name="talker",
            description="Talks.",
            version="1",
            capabilities=AgentCapabilities(streaming=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="talk", name="talk", description="Talks.", tags=["talk"])],
            supported_interfaces=[
                AgentInterface(
                    protocol_binding="JSONRPC",
                    url=f"http://127.0.0.1:{self.port}/rpc",
                    protocol_version="1.0",
                )
            ],
        )
        handler = DefaultRequestHandler(
            agent_executor=self.talker, task_store=InMemoryTaskStore(), agent_card=card
        )
        routes = [
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, rpc_url="/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler),
        ]
        self.server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self.thread.start()

    def stop(self):
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def foreign():
    server = Foreign()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def proxied(foreign):
    """The same agent, whose first connections are cut in the middle."""
    with CuttingProxy(foreign.port, [after_bytes(1500), after_bytes(3000)]) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def near(foreign, proxied, tmp_path_factory):
    """A gateway in front of it, with an agent for each way to call it."""
    folder = tmp_path_factory.mktemp("near")
    base = f"http://127.0.0.1:{foreign.port}"
    ways = {
        "card": {"url": base},
        "old": {"url": f"{base}/rpc", "protocol": "0.3"},
        "rest": {"url": base, "protocol": "1.0", "binding": "http+json"},
        "cut": {"url": f"{proxied.url}/rpc", "protocol": "1.0"},
    }
    tables = [
        f'[[agents]]\nname = "{name}"\nkind = "a2a"\n'
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for name, keys in ways.items()
    ]
    (folder / "capstan.toml").write_text("\n".join(tables))
    command = [
        BINARY,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--journal",
        "memory:",
        "--config",
        folder / "capstan.toml",
    ]
    log = open(folder / "log", "w+")
    process = subprocess.Popen(
        command, cwd=folder, env={}, stdout=subprocess.PIPE, stderr=log, text=True
    )
    yield re.search(r"listening on (http://[^,\s]+)", process.stdout.readline())[1]
    process.terminate()
    process.communicate()


def packets(http, near, agent, request):
    body = http.post(f"{near}/v1/agents/{agent}/assist", json=request, timeout=30).text
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]


def text_of(packets):
    return "".join(packet["p"] for packet in packets if packet["op"] == "DELTA")


@pytest.mark.parametrize("agent", ["card", "old", "rest", "cut"])
def test_its_artifact_is_the_answer_whatever_is_cut(near, http, ask, agent, proxied):
    told = packets(http, near, agent, ask("tok"))
    assert text_of(told) == "".join(f"tok{n} " for n in range(20)), told
    assert told[-1]["p"]["reason"] == "completed"
    labels = [packet["p"]["data"]["label"] for packet in told if packet["op"] == "EVENT"]
    assert "Thinking" in labels
    assert not any("stream_reset" in json.dumps(packet) for packet in told)
    assert agent != "cut" or proxied.cuts > 0


@pytest.mark.parametrize("agent", ["card", "old", "rest"])
def test_a_failure_is_a_fault_in_its_own_words(near, http, ask, agent):
    told = packets(http, near, agent, ask("fail"))
    assert (told[-2]["op"], told[-2]["p"]["code"], told[-2]["p"]["message"]) == (
        "ERROR",
        "upstream_error",
        "The lab burnt down.",
    )


@pytest.mark.parametrize("agent", ["card", "old", "rest"])
def test_a_question_is_asked_and_answered_in_the_same_task(near, http, ask, agent):
    request = ask("ask")
    told = packets(http, near, agent, request)
    question = next(
        packet["p"]["data"]
        for packet in told
        if packet["op"] == "EVENT" and packet["p"]["type"] == "INTERRUPT"
    )
    assert question["message"] == "Which colour?"
    again = ask("")
    again["context"]["session_id"] = again["payload"]["session_id"] = request["context"][
        "session_id"
    ]
    again["payload"]["payload"] = {
        "resume": [{"interruptId": question["id"], "status": "resolved", "payload": "blue"}]
    }
    answered = packets(http, near, agent, again)
    assert text_of(answered).startswith("blue0 blue1 "), answered
    assert answered[-1]["p"]["reason"] == "completed"


def test_a_stop_cancels_its_task(near, http, ask, foreign):
    with http.stream(
        "POST", f"{near}/v1/agents/card/assist", json=ask("hang"), timeout=30
    ) as response:
        lines = response.iter_lines()
        while "Thinking" not in next(lines):
            pass
        http.delete(f"{near}/v1/streams/{response.headers['x-stream-id']}")
    assert foreign.talker.canceled.wait(10)
