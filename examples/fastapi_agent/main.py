"""An agent in FastAPI that answers in packets and fails in types.

    pip install ./bindings/python fastapi uvicorn
    uvicorn --app-dir examples/fastapi_agent main:app --port 8001

Ask it with any client: `CAPClient("http://localhost:8001", "").chat("Hello")`. Ask for `/limit`,
`/crash`, `/late`, `/refuse` or `/warn` to see it fail.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, FastAPI

from coreason_client import (
    ErrorDomain,
    ErrorSeverity,
    ServiceRequest,
    StreamError,
    StreamOpCode,
    UserError,
)
from coreason_client.agent import PacketWriter
from coreason_client.agui import A2ARateLimitExceeded

app = FastAPI(title="A CAP agent")


def question(request: ServiceRequest) -> str:
    """What the user asks: the last message, or the query."""
    payload = request.payload.payload
    if messages := payload.get("messages"):
        return "".join(part.get("content", "") for part in messages[-1]["parts"])
    return str(payload.get("query", ""))


@app.post("/assist")
async def assist(request: Annotated[ServiceRequest, Body()]) -> Any:
    """Our models work as pydantic's, so FastAPI has checked the request already."""

    async def answer(stream: PacketWriter) -> None:
        match question(request):
            case "/limit":
                raise A2ARateLimitExceeded(
                    retry_after=7
                )  # becomes rate_limit_exceeded with its wait
            case "/crash":
                await stream.write_delta("So far so ")
                raise KeyError("a secret")  # becomes agent_execution_error; the text stays here
            case "/late":
                raise TimeoutError  # becomes timeout
            case "/refuse":
                error = StreamError(
                    code="content_refused",
                    message="I would rather not.",
                    severity=ErrorSeverity.FATAL,
                )
                await stream.write_packet(op=StreamOpCode.ERROR, p=error)
            case "/warn":
                await stream.write_error(
                    StreamError("cache_cold", "This takes longer.", ErrorSeverity.WARNING)
                )
                sorry = UserError(
                    "The search tool is down.", code=503, domain=ErrorDomain.TOOL, retryable=True
                )
                await stream.write_event("user_error", sorry)
                await stream.write_delta("Done without it.")
            case text:
                for word in f"You said: {text}".split(" "):
                    await stream.write_delta(f"{word} ")

    return PacketWriter(answer).response()
