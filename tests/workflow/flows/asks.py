from gateway.workflow import Context, workflow


@workflow
async def asks(ctx: Context, first: str = "one", second: str = "two") -> str:
    """Asks twice.

    Args:
        first: what is asked first.
    """
    a = await ctx.ask(first, name="first", max_tokens=20)
    b = await ctx.ask(second, name="second", max_tokens=20)
    return f"{a} | {b}"
