"""The official Python SDK of A2A as it was in version 0.3, against the real binary:
`scripts/old-a2a` runs it, with packages of its own."""

import asyncio
import uuid

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)


def message(text, **more):
    return Message(
        message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **more
    )


async def last(events):
    """The task after all events."""
    async for task, _ in events:
        pass
    return task


def with_client(gateway, run, **config):
    async def main():
        async with httpx.AsyncClient(timeout=30) as http:
            card = await A2ACardResolver(http, gateway.url).get_agent_card()
            await run(ClientFactory(ClientConfig(httpx_client=http, **config)).create(card))

    asyncio.run(main())


BINDINGS = [TransportProtocol.jsonrpc, TransportProtocol.http_json]


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_task_is_streamed_or_sent_kept_failed_and_answered(gateway, streaming, binding):
    async def run(client):
        task = await last(client.send_message(message("/tokens 5")))
        assert task.status.state == TaskState.completed
        kept = await client.get_task(TaskQueryParams(id=task.id))
        assert (
            "".join(part.root.text for part in kept.artifacts[0].parts)
            == "tok1 tok2 tok3 tok4 tok5 "
        )
        failed = await last(client.send_message(message("/fault content_refused")))
        assert (failed.status.state, failed.status.message.parts[1].root.data["code"]) == (
            TaskState.failed,
            "content_refused",
        )
        asked = await last(client.send_message(message("/ask Blue?")))
        assert asked.status.state == TaskState.input_required
        answered = await last(
            client.send_message(message("yes", task_id=asked.id, context_id=asked.context_id))
        )
        assert (answered.status.state, answered.id) == (TaskState.completed, asked.id)

    with_client(gateway, run, streaming=streaming, supported_transports=[binding])


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_task_is_come_back_to_told_of_and_canceled(gateway, binding):
    async def run(client):
        events = client.send_message(message("/hang"))
        task, _ = await anext(events)
        wanted = PushNotificationConfig(id="c", url="http://localhost:9/", token="t")
        await client.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=wanted)
        )
        named = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="c")
        assert (await client.get_task_callback(named)).push_notification_config == wanted
        watch = client.resubscribe(TaskIdParams(id=task.id))
        again, _ = await anext(watch)
        assert (again.id, again.status.state) == (task.id, TaskState.working)
        assert (
            await client.cancel_task(TaskIdParams(id=task.id))
        ).status.state == TaskState.canceled
        assert (await last(watch)).status.state == TaskState.canceled
        assert (await last(events)).status.state == TaskState.canceled
        assert (await client.get_card()).name == "demo"

    with_client(gateway, run, supported_transports=[binding])
