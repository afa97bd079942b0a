import time

from gateway.workflow import Context, workflow


@workflow
async def marks(ctx: Context, steps: int = 3, slow: float = 0.0) -> list[int]:
    """Steps that each leave a line in a file, so that a test sees how often each one was made."""

    def mark(number: int) -> int:
        with (ctx.folder / "marks").open("a") as file:
            file.write(f"{number}\n")
        time.sleep(slow)
        return number

    return [await ctx.step(mark, number, name=f"mark-{number}") for number in range(steps)]
