"""Structured answers: what is asked for, and whether what came is it. A JSON Schema, or a pydantic model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.chat import Message
from gateway.runs import JSON

SAID_MAX = 500


class Unfit(ValueError):
    """An answer that is not what was asked for; its text says where and how."""


class Schema:
    """The shape of an answer. Raises TypeError for what is neither a JSON Schema nor a pydantic model."""

    def __init__(self, given: Any) -> None:
        self._model = given if hasattr(given, "model_validate") and hasattr(given, "model_json_schema") else None
        if self._model is None and not isinstance(given, Mapping):
            raise TypeError("schema must be a JSON Schema (a dict) or a pydantic model")
        self._schema: dict[str, Any] = self._model.model_json_schema() if self._model is not None else dict(given)

    def asked(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with the shape in words: not every provider knows how to be told otherwise."""
        words = f"Answer with one JSON object and nothing else. It must fit this JSON Schema: {json.dumps(self._schema)}"
        first, *rest = messages
        if first.get("role") == "system" and isinstance(first.get("content"), str):
            return [{**first, "content": f"{first['content']}\n\n{words}"}, *rest]
        return [{"role": "system", "content": words}, *messages]

    def extra(self) -> dict[str, Any]:
        """The field of the request that says it."""
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": self._schema}}}

    def read(self, text: str) -> JSON:
        """The answer. Raises Unfit."""
        fenced = re.search(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
        try:
            found = json.loads(fenced[1] if fenced else text)
        except ValueError as error:
            raise Unfit(f"it is no JSON: {error}") from None
        return self._checked(found)

    def repair(self, asked: Sequence[Message], text: str, unfit: Unfit) -> list[Message]:
        """The messages that ask once more, with what is wrong."""
        wrong = f"That does not fit: {unfit}. Answer again, with the corrected JSON object and nothing else."
        return [*asked, {"role": "assistant", "content": text}, {"role": "user", "content": wrong}]

    def _checked(self, found: JSON) -> JSON:
        if self._model is not None:
            from pydantic import ValidationError

            try:
                return self._model.model_validate(found).model_dump(mode="json")
            except ValidationError as error:
                faults = error.errors(include_url=False, include_input=False)
                places = (f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in faults)
                raise Unfit("; ".join(places)[:SAID_MAX]) from None
        import fastjsonschema

        try:
            fastjsonschema.compile(self._schema)(found)
        except fastjsonschema.JsonSchemaValueException as error:
            raise Unfit(error.message.replace("data", "it", 1)[:SAID_MAX]) from None
        return found
