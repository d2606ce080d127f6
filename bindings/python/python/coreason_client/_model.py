"""The base of the request and event models. Rust checks them; Python holds the members.

A model is built once per request or event, not once per packet, so it may take microseconds and
stay plain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from enum import Enum
from uuid import NAMESPACE_URL, UUID, uuid5

from . import _core
from ._arguments import unicode
from .errors import CAPValidationError

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from typing_extensions import Self

UUID_LIKE = re.compile(r"(urn:uuid:)?\{?[0-9a-f-]{30,}\}?", re.IGNORECASE)
"""A UUID, or a text that looks like one."""


def to_jsonable(value: Any) -> Any:
    """Converts what `json` cannot: our models, pydantic's, ids, times, other mappings."""
    if isinstance(value, Model):
        return value.to_dict()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return from_datetime(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    if isinstance(value, _core.StreamPacket):
        return value.to_dict()
    if hasattr(value, "model_dump"):
        return _dump_of(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _dump_of(value: Any) -> Any:
    """Pydantic's dump can leave nothing but JSON; those of other families may take no arguments."""
    try:
        return value.model_dump(mode="json", exclude_none=True)
    except TypeError:
        return value.model_dump()


def to_json_text(value: Any) -> str:
    """Any of these as JSON text; floats that JSON cannot hold are refused by the reader, with their
    path.
    """
    text = json.dumps(value, default=to_jsonable, ensure_ascii=False, separators=(",", ":"))
    return unicode("", text)


def to_datetime(text: str) -> datetime:
    """Parses RFC 3339. `fromisoformat` does not accept `Z` before 3.11."""
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def from_datetime(value: datetime) -> str:
    """Encodes a time. Without an offset it counts as local, as in `datetime`."""
    if value.tzinfo is None:
        value = value.astimezone()
    text = value.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def now() -> datetime:
    """The present time, with its offset."""
    return datetime.now(timezone.utc)


def to_uuid(name: str, value: Any) -> UUID:
    """Converts an id to a UUID."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise CAPValidationError(
            name, f"expected a UUID, found {value!r}; make one with uuid.uuid4()"
        ) from None


def to_session(name: str, value: Any) -> UUID:
    """The id of a session. The protocol's are UUIDs; a name of your own, such as `sess_abc`, stands
    for one, always the same.
    """
    if isinstance(value, str) and value and not UUID_LIKE.fullmatch(value):
        return uuid5(NAMESPACE_URL, unicode(name, value))
    return to_uuid(name, value)


class Model:
    """A frozen value of the protocol."""

    __slots__ = ("__weakref__",)

    _name: ClassVar[str]
    """The model's name in the data contract."""
    _fields: ClassVar[tuple[str, ...]]
    """Its members, in the order of the wire."""
    _readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """The converters of members that are more than JSON."""

    def _set(self, members: Mapping[str, Any]) -> None:
        for name in self._fields:
            object.__setattr__(self, name, members.get(name))

    def _check(self, members: Mapping[str, Any]) -> None:
        """Checks the arguments of a constructor in Rust, and uses the canonical form."""
        given = {name: value for name, value in members.items() if value is not None}
        self._read(json.loads(_core.check("v1", self._name, to_json_text(given))))

    def _read(self, document: Mapping[str, Any]) -> None:
        readers = self._readers
        self._set(
            {
                name: readers[name](value) if name in readers and value is not None else value
                for name, value in document.items()
            }
        )

    @classmethod
    def _trusted(cls, document: Mapping[str, Any]) -> Self:
        """Makes a value of a document that Rust has checked."""
        self = object.__new__(cls)
        self._read(document)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def _members(self) -> dict[str, Any]:
        """The members that are set."""
        pairs = ((name, getattr(self, name)) for name in self._fields)
        return {name: value for name, value in pairs if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """The value as a dict of JSON values, without absent members."""
        document: dict[str, Any] = json.loads(self.to_json())
        return document

    def to_json(self) -> str:
        """The value as JSON text."""
        return to_json_text(self._members())

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """Reads a dict; a wrong member raises `ValueError` with its path."""
        return cls.from_json(to_json_text(value))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads JSON text; a wrong member raises `ValueError` with its path."""
        text = unicode("", text) if isinstance(text, str) else text.decode()
        return cls._trusted(json.loads(_core.check("v1", cls._name, text)))

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """Pydantic's method: a dict of Python values, or of JSON values with `mode="json"`."""
        if mode == "json":
            return self.to_dict()
        members = {name: _dumped(getattr(self, name)) for name in self._fields}
        return {
            name: value for name, value in members.items() if not (exclude_none and value is None)
        }

    def model_dump_json(self) -> str:
        """Pydantic's name for `to_json`."""
        return self.to_json()

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Pydantic's name for `from_dict`. A value of this model is returned unchanged."""
        return value if isinstance(value, cls) else cls.from_dict(value)

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Pydantic's name for `from_json`."""
        return cls.from_json(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from ._pydantic import core_schema

        return core_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        from ._pydantic import json_schema

        return json_schema(cls._name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Model)
        return self._members() == other._members()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={_shown(value)}" for name, value in self._members().items())
        return f"{type(self).__name__}({members})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).from_json, (self.to_json(),))


def _dumped(value: Any) -> Any:
    if isinstance(value, Model):
        return value.model_dump()
    if isinstance(value, (list, tuple)):
        return [_dumped(item) for item in value]
    return value


def _shown(value: Any) -> str:
    """Shows ids, times and enum members as plain text."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return from_datetime(value)
    if isinstance(value, Enum):
        return value.name
    return repr(value)
