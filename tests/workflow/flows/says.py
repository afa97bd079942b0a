from gateway.workflow import Context, workflow


@workflow
async def says(ctx: Context, text: str) -> str:
    """Asks one thing."""
    return str(await ctx.ask(text, max_tokens=20))
