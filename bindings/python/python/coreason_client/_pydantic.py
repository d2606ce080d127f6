"""Our models as fields of pydantic v2 models. Imported only by pydantic itself."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def core_schema(cls: Any) -> Any:
    """Validates with our own rules, and serialises to the form of the wire."""
    from pydantic_core import core_schema as schema

    return schema.no_info_plain_validator_function(
        cls.model_validate,
        serialization=schema.plain_serializer_function_ser_schema(lambda value: value.to_dict()),
    )


def json_schema(name: str) -> dict[str, Any]:
    """The model's JSON Schema without references: pydantic has a list of definitions of its own."""
    document: dict[str, Any] = json.loads(
        files(__package__).joinpath("schemas.json").read_text("utf-8")
    )[name]
    definitions = document.pop("$defs", {})
    document.pop("$schema", None)
    schema = _inlined(document, definitions, ())
    assert isinstance(schema, dict)
    schema.setdefault("title", name)
    return schema


def _inlined(node: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, definitions, within) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.rsplit("/", 1)[-1]
        if name in within:  # a model that holds itself is described once
            return {"type": "object"}
        return _inlined(definitions.get(name, {}), definitions, (*within, name))
    return {key: _inlined(value, definitions, within) for key, value in node.items()}
