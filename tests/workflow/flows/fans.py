from gateway.workflow import Context, workflow


@workflow
async def fans(ctx: Context, items: int = 20, limit: int = 5, strict: bool = False) -> list[str]:
    """Asks about every item, two steps each; an item may fail."""

    async def about(item: Context, number: int) -> str:
        await item.step(_check, ctx.folder.as_posix(), number, name="check")
        return f"{number}: {await item.ask(f'item {number}', max_tokens=20)}"

    outcomes = await ctx.map(about, range(items), limit=limit, name="each")
    await ctx.log(f"{sum(outcome.error is None for outcome in outcomes)} went well")
    return [outcome.get() if strict or outcome.error is None else f"failed: {outcome.error.reason}" for outcome in outcomes]


def _check(folder: str, number: int) -> int:
    from pathlib import Path

    with (Path(folder) / "checked").open("a") as file:
        file.write(f"{number}\n")
    if (Path(folder).parent / "bad").exists() and number == 7:
        raise ValueError("the seventh is bad")
    return number
