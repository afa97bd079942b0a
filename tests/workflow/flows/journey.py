from gateway.workflow import Context, workflow


@workflow
async def journey(ctx: Context) -> str:
    """Every kind of work on the way: functions, models side by side and one by one, a program, a file."""

    def mark(name: str) -> str:
        with (ctx.folder / "marks").open("a") as file:
            file.write(f"{name}\n")
        return name

    async def about(item: Context, topic: str) -> str:
        await item.step(mark, topic, name="note")
        return str(await item.ask(f"about {topic}", max_tokens=30))

    await ctx.step(mark, "begin", name="begin")
    plan = await ctx.ask("make a plan", name="plan", max_tokens=30)
    parts = [outcome.get() for outcome in await ctx.map(about, ["a", "b", "c"], limit=2, name="parts")]
    await ctx.shell(["sh", "-c", "sleep 0.2; echo made > made"], name="make")
    summary = await ctx.ask(f"{plan} {' '.join(parts)}", name="summary", max_tokens=30)
    await ctx.write("REPORT.md", summary, name="report")
    await ctx.step(mark, "end", name="end")
    return str(summary)
