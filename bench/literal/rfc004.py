"""RFC 004's own recipe, taken literally: httpx for the wire, pydantic for the packets, a loop that resumes.

Counts the packets of one run and prints what it took, for the bench beside it.
"""

import json
import sys
import time
from datetime import datetime
from enum import Enum
from typing import Any, Union
from uuid import UUID, uuid4

import httpx
from pydantic import BaseModel, ConfigDict


class Op(str, Enum):
    DELTA = "DELTA"
    EVENT = "EVENT"
    ERROR = "ERROR"
    CLOSE = "CLOSE"


class Packet(BaseModel):
    model_config = ConfigDict(extra="forbid")
    stream_id: UUID
    seq: int
    op: Op
    t: datetime
    p: Union[str, dict[str, Any]]


def event_loop(http: httpx.Client, url: str, body: dict[str, Any]):
    last_id, last_seq, delay = None, -1, 0.5
    while True:
        headers = {"Last-Event-ID": str(last_id)} if last_id else {}
        try:
            with http.stream("POST", f"{url}/assist", json=body, headers=headers) as response:
                response.raise_for_status()
                delay = 0.5
                for line in response.iter_lines():
                    if not line.startswith("data:"):
                        continue
                    packet = Packet.model_validate_json(line[5:])
                    if packet.seq <= last_seq:
                        continue
                    last_seq, last_id = packet.seq, packet.stream_id
                    yield packet
                    if packet.op is Op.CLOSE:
                        return
        except httpx.TransportError:
            time.sleep(delay)
            delay = min(delay * 2, 30.0)


def resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def main() -> None:
    url = sys.argv[1]
    with httpx.Client(timeout=httpx.Timeout(60.0, connect=10.0)) as http:
        packets, start, early = 0, 0.0, 0
        for packet in event_loop(http, url, {"request_id": str(uuid4())}):
            packets += 1
            if packets == 1:
                start, early = time.perf_counter(), resident()
        seconds = time.perf_counter() - start
    print(json.dumps({"packets": packets, "seconds": seconds, "early_kb": early, "late_kb": resident()}))


if __name__ == "__main__":
    main()
