import asyncio
import contextlib
import sys

from gateway.workflow import Context, StepFailed, workflow


async def speaks() -> None:
    """Fails with a text that no encoding has, as the name of a strange file may be."""
    raise ValueError("caf\ud83d")


async def gives_up() -> None:
    """Waits for something that was cancelled, as a library may that was closed."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.cancel()
    await gone


@workflow
async def every(ctx: Context, kind: str = "shell") -> str:
    """One step of each kind, long enough to be cancelled in it."""
    if kind == "shell":
        await ctx.shell(["sh", "-c", "sleep 600 & sleep 600"], name="long")
    elif kind == "http":
        question = '{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
        await ctx.http("POST", (ctx.folder.parent.parent.parent / "url").read_text(), body=question, timeout=60)
    elif kind == "ask":
        await ctx.ask("hello", max_tokens=20)
    elif kind == "sleep":
        await ctx.sleep(3600)
    elif kind == "wait_for":
        return str(await ctx.wait_for("go", timeout=600))
    elif kind == "approve":
        return str(await ctx.approve("May I?", expires=600))
    elif kind == "approve or fail":
        return str(await ctx.approve("May I?", expires=600, otherwise="fail"))
    elif kind == "map":
        await ctx.map(lambda item, seconds: item.sleep(seconds), [3600, 3600, 3600], limit=2)
    elif kind == "files":
        path = await ctx.write("notes/a.txt", "héllo")
        ran = await ctx.shell(["cat", str(path)])
        await ctx.log("a line")
        return await ctx.read("notes/a.txt") + ran.output
    elif kind == "gather":
        await asyncio.gather(ctx.sleep(600, name="a"), ctx.sleep(600, name="b"))
    elif kind == "leaves in a step":
        await ctx.step(sys.exit, "I leave", name="leave")
    elif kind == "leaves":
        sys.exit("I leave")
    elif kind == "will not hear of its end":
        for _ in range(6):
            with contextlib.suppress(BaseException):
                await ctx.sleep(3600)
    elif kind == "ends an iterator in a step":
        await ctx.step(next, iter(()), name="leave")
    elif kind == "speaks in half letters in a step":
        await ctx.step(speaks, name="leave")
    elif kind == "speaks in half letters":
        await speaks()
    elif kind == "asks nobody":
        await ctx.approve("May I?", who=("starter", "admin"))
    elif kind == "tells nobody":
        await ctx.notify("done", to="telegram:somebody")
    elif kind == "tells with a file from outside":
        await ctx.notify("done", to="file:told", file="../../sluicegate.toml")
    elif kind == "cancels itself in a step":
        await ctx.step(gives_up, name="leave")
    elif kind == "cancels itself":
        await gives_up()
    elif kind == "caught":
        try:
            await ctx.shell(["false"], name="bad")
        except StepFailed as error:
            return f"caught {error}"
    return "done"
