from gateway.workflow import Caps, Context, workflow


@workflow(budget=Caps(requests=2))
async def capped(ctx: Context, times: int = 3) -> list[str]:
    """Asks as often as it is told, with a cap of two calls."""
    return [await ctx.ask(f"question {number}", max_tokens=20) for number in range(times)]
