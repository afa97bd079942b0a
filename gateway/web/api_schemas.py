"""What goes in and comes out over HTTP, as JSON Schema: the `components` of `/openapi.json`.

Fields are named that a program may rely on. Others may come beside them, and a provider's own travel untouched.
"""

from __future__ import annotations

from typing import Any

from gateway.runs import RunState

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {"type": "object"}
INSTANT: Schema = {"type": ["string", "null"], "format": "date-time"}
MAYBE: Schema = {"type": ["string", "null"]}


def ref(name: str) -> Schema:
    """A reference to one of these."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(schema: Schema) -> Schema:
    """A list of so many."""
    return {"type": "array", "items": schema}


def fields(required: str, **properties: Schema) -> Schema:
    """An object; `required` are the names that are always there, or must be."""
    return {"type": "object", "required": required.split(), "properties": properties}


def _is(value: str) -> Schema:
    return {"type": "string", "const": value}


_RUN = {
    "id": TEXT,
    "workflow": TEXT,
    "state": {"type": "string", "enum": [state.value for state in RunState]},
}
_USAGE = fields("prompt_tokens total_tokens", prompt_tokens=NUMBER, completion_tokens=NUMBER, total_tokens=NUMBER)
_MODEL_ASKED: Schema = {"type": "string", "description": "a chain, a provider, an alias, or provider:model"}
_LIMIT: Schema = {"type": ["integer", "null"], "minimum": 1, "description": "the most tokens that the answer may have"}

SCHEMAS: dict[str, Schema] = {
    "Error": fields(
        "error",
        error=fields(
            "message type code param request_id",
            message=TEXT,
            type=TEXT,
            code={"type": "string", "description": "budget_exhausted, prompt_too_large_for_budget, unpriced_model …"},
            param=MAYBE,
            request_id=TEXT,
            scope={"type": "string", "description": "whose allowance is used up: user, provider … or all"},
            unit={"type": "string", "enum": ["requests", "tokens", "micro_usd"]},
            resets_at=INSTANT,
            budget={"type": "string", "description": "this and the next four are for admin keys only"},
            limit=NUMBER,
            spent=NUMBER,
            held=NUMBER,
            asked=NUMBER,
        ),
    ),
    "MessagesError": fields(
        "type error request_id",
        type=_is("error"),
        error=fields("type message code request_id", type=TEXT, message=TEXT, code=TEXT, request_id=TEXT),
        request_id=TEXT,
    ),
    "ChatRequest": fields(
        "model messages",
        model=_MODEL_ASKED,
        messages=listed(fields("role", role=TEXT, content={"type": ["string", "array", "null"]})),
        max_tokens=_LIMIT,
        max_completion_tokens=_LIMIT,
        n={"type": ["integer", "null"], "minimum": 1},
        stream=FLAG,
        stream_options=fields("", include_usage=FLAG),
        tools=listed(ANY),
    ),
    "ChatCompletion": fields("choices", id=MAYBE, object=_is("chat.completion"), model=TEXT, choices=listed(ANY), usage=_USAGE),
    "EmbeddingsRequest": fields(
        "model input",
        model=_MODEL_ASKED,
        input={
            "description": "a text, a list of texts, a list of tokens, or a list of such lists",
            "anyOf": [TEXT, listed(TEXT), listed(NUMBER), listed(listed(NUMBER))],
        },
        encoding_format={"type": "string", "description": "float or base64, as the provider has it"},
        dimensions=NUMBER,
    ),
    "Embeddings": fields(
        "data",
        object=_is("list"),
        model=TEXT,
        data=listed(fields("embedding", index=NUMBER, embedding={"type": ["array", "string"]})),
        usage=_USAGE,
    ),
    "MessagesRequest": fields(
        "model messages max_tokens",
        model=_MODEL_ASKED,
        max_tokens={"type": "integer", "minimum": 1},
        messages=listed(fields("role content", role={"enum": ["user", "assistant"]}, content={"type": ["string", "array"]})),
        system={"type": ["string", "array"]},
        stop_sequences=listed(TEXT),
        stream=FLAG,
        tools=listed(ANY),
        tool_choice=ANY,
        thinking=ANY,
    ),
    "CountRequest": fields("model messages", model=_MODEL_ASKED, messages=listed(ANY), system={"type": ["string", "array"]}),
    "Message": fields(
        "id type role model content stop_reason usage",
        id=TEXT,
        type=_is("message"),
        role=_is("assistant"),
        model=TEXT,
        content=listed(fields("type", type=TEXT)),
        stop_reason=TEXT,
        stop_sequence=MAYBE,
        usage=fields(
            "input_tokens output_tokens",
            input_tokens=NUMBER,
            output_tokens=NUMBER,
            cache_read_input_tokens=NUMBER,
            cache_creation_input_tokens=NUMBER,
        ),
    ),
    "TokenCount": fields("input_tokens", input_tokens=NUMBER),
    "Model": fields("id object owned_by", id=TEXT, object=_is("model"), created=NUMBER, owned_by=TEXT),
    "Models": fields("object data", object=_is("list"), data=listed(ref("Model"))),
    "Budget": fields(
        "name scope unit limit spent held left resets_at runs_out_at",
        name=TEXT,
        scope=ANY,
        unit={"type": "string", "enum": ["requests", "tokens", "micro_usd"]},
        limit=NUMBER,
        spent=NUMBER,
        held=NUMBER,
        left={"type": "integer"},
        resets_at=INSTANT,
        runs_out_at=INSTANT | {"description": "when it is used up at its present pace; null where it lasts until it resets"},
    ),
    "Budgets": fields("budgets", budgets=listed(ref("Budget"))),
    "Raise": {
        **fields("change for", change={"type": ["string", "integer"]}, **{"for": TEXT}),
        "description": "change: +50k, +20%, =300k or a number; for: 30m, 2h, 1d",
    },
    "Raised": fields("name ends_at budgets", name=TEXT, ends_at=INSTANT, budgets=listed(ref("Budget"))),
    "Usage": {
        "type": "object",
        "required": ["from", "to", "by", "usage"],
        "properties": {"from": INSTANT, "to": INSTANT, "by": listed(TEXT), "usage": listed(ANY)},
    },
    "Workflows": fields("workflows", workflows=listed(fields("name parameters", name=TEXT, help=TEXT, parameters=ANY))),
    "RunBrief": fields("id workflow state", **_RUN),
    "Run": fields("id workflow state params created", **_RUN, params=ANY, created=INSTANT, ended=INSTANT, cost_micro_usd=NUMBER),
    "RunDetails": fields("id workflow state steps approvals", **_RUN, steps=listed(ANY), approvals=listed(ANY)),
    "Runs": fields("runs next", runs=listed(ref("Run")), next=MAYBE),
    "Parameters": {"type": "object", "description": "the workflow's own parameters, as /api/workflows lists them"},
    "Retry": fields("", caps=fields("", tokens=NUMBER, usd={"type": "number"}, requests=NUMBER)),
    "Decision": fields("", approval={"type": "string", "description": "which question, where a run asks several"}),
    "Decided": fields("id approval", id=TEXT, approval=ANY),
    "AnyJson": {"description": "any JSON, or nothing"},
    "Signalled": fields("id signal", id=TEXT, signal=TEXT),
    "Health": fields("status", status=TEXT),
    "OpenApi": fields("openapi paths", openapi=TEXT, paths=ANY),
}
