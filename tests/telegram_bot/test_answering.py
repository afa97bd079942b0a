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
        second = await run.api.answered("Groq answers until 13:00")
        assert second.text.startswith("Answer from the second.")

        await run.api.say("third question")
        notice = await run.api.answered("is used up")
        assert "at 13:00 (in 1 h)" in notice.text
        assert "Answer me at 13:00" in notice.buttons
        assert len(run.api.bubbles()) == 3
        assert (run.first.meter.requests, run.second.meter.requests) == (1, 1)

        await run.api.tap(notice, "Answer me")
        await run.api.until(lambda: list(notice.buttons) == ["Cancel"])
        await run.idle()
        await run.restart()
        run.first.default = Script(text="At last.")
        run.clock.advance(minutes=59)
        await run.api.until(lambda: run.bot.ready)
        await run.idle()
        assert run.first.meter.requests == 1, "not before its time"
        run.clock.advance(minutes=1)
        late = await run.api.answered("At last.")
        assert late.message_id > notice.message_id
        assert (run.first.meter.requests, run.second.meter.requests) == (2, 1)


async def test_production_story_on_telegram_a_lowered_hour_a_restart_and_one_notice(tmp_path: Path, sqlite_url: str) -> None:
    """The hour stands at 300,000 of 250,000 after a restart: no call goes out, and the person is told once when it opens."""
    hour = '[[budgets]]\nname = "moonshot-hour"\nprovider = "moonshot"\ntokens = {}\nper = "rolling 1h"\n'
    alone = '[[budgets]]\nname = "no-groq"\nprovider = "groq"\ntokens = 0\nper = "day"\n'
    async with rig(tmp_path, sqlite_url, budgets=hour.format(400_000) + alone, provider="max_output_tokens = 32_000") as run:
        run.first.queue.append(Script(text="Long.", prompt_tokens=2, output_tokens=299_998, ignore_limit=True))
        run.first.default = Script(pieces=16_924)
        await run.api.say("Tell me everything")
        await run.api.answered("Long.")
        await run.idle()
        run.budgets = hour.format(250_000) + alone
        await run.restart()
        calls, tokens = run.first.meter.requests, run.first.meter.tokens

        await run.api.say("And now the rest of it")
        notice = await run.api.answered("is used up")
        assert "13:01 (in 1 h 1 min)" in notice.text
        assert len(run.api.bubbles()) == 2
        assert (run.first.meter.requests - calls, run.first.meter.tokens - tokens, run.second.meter.requests) == (0, 0, 0)
