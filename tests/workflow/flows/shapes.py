from gateway.workflow import Context, workflow

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
}


@workflow
async def shapes(ctx: Context) -> str:
    """Wants an object back."""
    found = await ctx.ask("Which city?", schema=SCHEMA, max_tokens=50)
    return f"{found['city']} {found['people']}"
