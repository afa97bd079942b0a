"""/budget and /usage: bars for people, amounts for admins."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.botapi import person
from tests.doubles.upstream import Script
from tests.telegram_bot.rig import ADMIN, GROUP, OTHER, PERSON, rig

BUDGETS = """
[[budgets]]
name = "person-day"
label = "your allowance"
user = "*"
requests = 4
per = "day"
[[budgets]]
name = "moonshot-hour"
provider = "moonshot"
tokens = 100_000
per = "hour"
[[budgets]]
name = "programs"
key = "*"
requests = 9
per = "day"
"""


async def test_people_see_bars_without_names_or_amounts_and_admins_see_all(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        run.first.default = Script(text="Yes.", prompt_tokens=24_999, output_tokens=1)
        for user in (PERSON, OTHER):
            await run.api.say("question", user)
            await run.api.answered("Yes.", user)
        await run.idle()
        await run.api.say("/budget", PERSON)
        shown = await run.api.answered("Your allowance")
        assert shown.text.splitlines() == [
            "▓▓▓░░░░░░░ 25% Your allowance for today · renews at 00:00",
            "▓▓▓▓▓░░░░░ 50% The team's allowance for this hour · renews at 13:00",
        ]
        await run.api.say("/budget", PERSON, **{"from": person(PERSON, "es")})
        spanish = await run.api.answered("Tu cupo")
        assert spanish.text.splitlines() == [
            "▓▓▓░░░░░░░ 25 % Tu cupo de hoy · se renueva a las 00:00",
            "▓▓▓▓▓░░░░░ 50 % El cupo del equipo de esta hora · se renueva a las 13:00",
        ]
        await run.api.say("/budget", ADMIN)
        everything = await run.api.answered("person-day", ADMIN)
        assert everything.text.splitlines() == [
            "▓▓▓░░░░░░░ 25% person-day (user 42) 1 / 4 · renews at 00:00",
            "▓▓▓░░░░░░░ 25% person-day (user 43) 1 / 4 · renews at 00:00",
            "▓▓▓▓▓░░░░░ 50% moonshot-hour 50,000 / 100,000 · renews at 13:00",
        ]
        await run.api.say("/budget@test_bot", ADMIN, GROUP)
        public = await run.api.answered("team's allowance", GROUP)
        assert "moonshot" not in public.text, "a group reads no names, whoever asks"


async def test_a_bar_says_when_it_is_full_at_its_present_pace(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, budgets=BUDGETS) as run:
        run.first.default = Script(text="Yes.", prompt_tokens=24_999, output_tokens=1)
        for _ in range(3):
            await run.api.say("question", PERSON)
        await run.api.until(lambda: len(run.api.bubbles()) == 3)
        await run.idle()
        run.clock.advance(minutes=20)
        await run.api.say("/budget", PERSON)
        shown = await run.api.answered("Your allowance")
        assert shown.text.splitlines() == [
            "▓▓▓▓▓▓▓▓░░ 75% Your allowance for today · renews at 00:00 · at this pace gone at 16:27",
            "▓▓▓▓▓▓▓▓░░ 75% The team's allowance for this hour · renews at 13:00 · at this pace gone at 12:27",
        ]
        await run.api.say("/budget", PERSON, **{"from": person(PERSON, "es")})
        assert "· a este ritmo se agota a las 16:27" in (await run.api.answered("Tu cupo")).text


async def test_usage_is_the_persons_own_month(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        run.first.default = Script(text="Yes.", prompt_tokens=1200, output_tokens=1)
        await run.api.say("/usage", PERSON)
        await run.api.answered("asked nothing this month")
        for _ in range(2):
            await run.api.say("question", PERSON)
        await run.api.say("question", OTHER)
        await run.api.answered("Yes.", OTHER)
        await run.api.until(lambda: len(run.api.bubbles(PERSON)) == 3)
        await run.idle()
        await run.api.say("/usage", PERSON)
        await run.api.answered("This month: answers 2, tokens 2,402.")
        await run.api.say("/usage", ADMIN)
        everybody = await run.api.answered("42: answers 2, tokens 2,402, $0.00", ADMIN)
        assert "43: answers 1" in everybody.text
        run.clock.advance(days=40)
        await run.api.say("/usage", PERSON)
        await run.api.until(lambda: len([b for b in run.api.bubbles(PERSON) if "nothing this month" in b.text]) == 2)
