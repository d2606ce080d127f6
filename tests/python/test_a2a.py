"""The official Python SDK of A2A against the real binary."""

import asyncio
import os
import uuid

import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError

# The SDK's own HTTP client gives up after five seconds of silence; to wait longer than that is for
# where there is time.
QUIET = 6 if os.environ.get("CAPSTAN_SOAK") else 0
BINDINGS = ["JSONRPC", "HTTP+JSON"]


def request(text, **more):
    message = Message(
        message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **more
    )
    return SendMessageRequest(message=message)


def text_of(parts):
    return "".join(part.text for part in parts)


class Seen:
    """Events of a stream, as one task."""

    def __init__(self):
        self.id, self.artifact, self.states, self.status = "", "", [], None

    def take(self, event):
        if event.HasField("task"):
            self.id = event.task.id
            self.artifact = "".join(text_of(artifact.parts) for artifact in event.task.artifacts)
            self.states.append(event.task.status.state)
        elif event.HasField("artifact_update"):
            update = event.artifact_update
            self.artifact = (self.artifact if update.append else "") + text_of(
                update.artifact.parts
            )
        elif event.HasField("status_update"):
            self.status = event.status_update.status
            self.states.append(self.status.state)


async def fold(events):
    seen = Seen()
    async for event in events:
        seen.take(event)
    return seen


def connect(gateway, binding):
    config = ClientConfig(supported_protocol_bindings=[binding], use_client_preference=True)
    return ClientFactory(config).create_from_url(gateway.url)


def tokens(count):
    return "".join(f"tok{n + 1} " for n in range(count))


@pytest.mark.parametrize("binding", BINDINGS)
def test_the_card_for_whoever_has_a_key_is_there(gateway, binding):
    async def run():
        client = await connect(gateway, binding)
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert (card.name, card.capabilities.extended_agent_card) == ("demo", True)

    asyncio.run(run())


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_message_is_a_task_that_is_streamed_and_kept(gateway, binding):
    async def run():
        client = await connect(gateway, binding)
        sent = request("/tokens 20")
        seen = await fold(client.send_message(sent))
        assert seen.artifact == tokens(20)
        assert (seen.states[0], seen.states[-1]) == (
            TaskState.TASK_STATE_WORKING,
            TaskState.TASK_STATE_COMPLETED,
        )
        again = await fold(client.send_message(sent))
        assert (again.id, again.artifact) == (seen.id, seen.artifact)
        task = await client.get_task(GetTaskRequest(id=seen.id))
        assert text_of(task.artifacts[0].parts) == tokens(20)
        listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
        assert [task.id for task in listed.tasks] == [seen.id]

    asyncio.run(run())


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_failure_and_a_question_are_states_of_the_task(gateway, binding):
    async def run():
        client = await connect(gateway, binding)
        failed = await fold(client.send_message(request("/fault content_refused")))
        assert failed.states[-1] == TaskState.TASK_STATE_FAILED
        assert failed.status.message.parts[1].data.struct_value["code"] == "content_refused"
        asked = await fold(client.send_message(request("/ask Paint it blue?")))
        assert asked.states[-1] == TaskState.TASK_STATE_INPUT_REQUIRED
        answered = await fold(client.send_message(request("yes", task_id=asked.id)))
        assert answered.id == asked.id
        assert 'You answered "yes"' in answered.artifact

    asyncio.run(run())


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_quiet_task_is_no_dead_one(gateway, binding):
    async def run():
        client = await connect(gateway, binding)
        events = client.send_message(request("/hang"))
        first = await anext(events)
        watch = client.subscribe(SubscribeToTaskRequest(id=first.task.id))
        # It is there before the end comes: whoever is too late is told that the task is over.
        assert (await anext(watch)).task.id == first.task.id
        watching = asyncio.create_task(fold(watch))
        await asyncio.sleep(QUIET)
        canceled = await client.cancel_task(CancelTaskRequest(id=first.task.id))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        assert (await fold(events)).states == [TaskState.TASK_STATE_CANCELED]
        assert (await watching).states[-1] == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=str(uuid.uuid4())))

    asyncio.run(run())
