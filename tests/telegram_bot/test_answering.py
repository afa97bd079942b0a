"""A message and its answer, end to end over real HTTP: Bot API server, upstreams, database and clock."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.upstream import Script
from tests.telegram_bot.rig import HOURLY, rig


async def test_a_message_is_answered_in_edits_then_by_the_second_then_by_itself_after_the_window(
    tmp_path: Path, sqlite_url: str
) -> None:
    long = " ".join(f"word{n}" for n in range(30))
    async with rig(tmp_path, sqlite_url, budgets=HOURLY) as run:
        run.first.default = Script(text=long, delay_s=0.1)
        await run.api.say("first question")
        bubble = await run.api.answered("word29")
        assert bubble.text == long
        assert bubble.edits >= 2
        assert len(run.api.bubbles()) == 1

        await run.api.say("second question")
        second = await run.api.answered("Answer from the second.")
        assert "Groq answers until 13:00" in second.text

        await run.api.say("third question")
        notice = await run.api.answered("is used up")
        assert "at 13:00 (in 1 h)" in notice.text
        assert "Answer me at 13:00" in notice.buttons
        assert len(run.api.bubbles()) == 3
        assert (run.first.meter.requests, run.second.meter.requests) == (1, 1)

        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        await run.restart()
        run.first.default = Script(text="At last.")
        run.clock.advance(minutes=59)
        await run.api.until(lambda: run.bot.ready)
        assert run.first.meter.requests == 1, "not before its time"
        run.clock.advance(minutes=1)
        late = await run.api.answered("At last.")
        assert late.message_id > notice.message_id
        assert (run.first.meter.requests, run.second.meter.requests) == (2, 1)
