"""Chat messages: a role and parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from .._model import Model

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

__all__ = ["ChatMessage", "Role"]


class Role(str, Enum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ChatMessage(Model):
    """A message of a conversation.

    `parts` are dicts with a `type`: `text`, `blob`, `file`, `uri`, `tool_call`,
    `tool_call_response` or `reasoning`.
    """

    __slots__ = ("name", "parts", "role")
    _name = "ChatMessage"
    _fields = ("role", "parts", "name")
    _readers: ClassVar = {"role": Role}

    role: Role
    parts: list[dict[str, Any]]
    name: str | None

    def __init__(
        self,
        role: Role | str,
        parts: Sequence[Mapping[str, Any]] | str,
        name: str | None = None,
    ) -> None:
        if isinstance(parts, str):
            parts = [{"type": "text", "content": parts}]
        self._check({"role": role, "parts": list(parts), "name": name})

    @classmethod
    def user(cls, text: str) -> ChatMessage:
        """A message of the user."""
        return cls(Role.USER, text)

    @classmethod
    def assistant(cls, text: str) -> ChatMessage:
        """A message of the agent."""
        return cls(Role.ASSISTANT, text)

    @classmethod
    def system(cls, text: str) -> ChatMessage:
        """Instructions."""
        return cls(Role.SYSTEM, text)

    @classmethod
    def tool(cls, id: str, response: Any) -> ChatMessage:
        """The result of the tool call `id`."""
        return cls(Role.TOOL, [{"type": "tool_call_response", "response": response, "id": id}])

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part["content"] for part in self.parts if part["type"] == "text")
