"""An SSE server with FastAPI, as one writes it for an answer that nobody has to resume. POST /run/N
streams N tokens."""

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()


async def tokens(count):
    for n in range(1, count + 1):
        yield f'data: {{"type":"text-delta","id":"1","delta":"tok{n} "}}\n\n'
    yield "data: [DONE]\n\n"


@app.post("/run/{count}")
async def run(count: int):
    return StreamingResponse(tokens(count), media_type="text/event-stream")
