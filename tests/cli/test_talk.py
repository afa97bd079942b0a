"""The chat on a terminal: answers stream, a line under each shows the budgets, a fallback and a notice are seen."""

import re
import time
from pathlib import Path

from tests.cli.program import Terminal, run

PROMPT = "› "


def ask(terminal: Terminal, text: str) -> str:
    """Types at the prompt; returns everything up to the next one."""
    terminal.type(text)
    return terminal.expect_prompt(PROMPT)


def test_ten_messages_show_an_answer_a_fallback_and_a_notice(folder: Path) -> None:
    with Terminal(folder, "chat", COLUMNS="150") as terminal:
        terminal.expect_prompt(PROMPT)
        first = ask(terminal, "one")
        assert "You wrote: one" in first
        under = next(line for line in first.splitlines() if line.startswith("— first"))
        assert re.search(r"— first · \d+ \+ \d+ tokens · first-requests ████░░░░ 1/2 ↻\d+:\d\d", under)
        ask(terminal, "two")
        fallback = ask(terminal, "three")
        assert "↪ first: budget first-requests: 2 spent" in fallback
        assert "You wrote: three" in fallback
        assert re.search(r"— second · \d+ \+ \d+ tokens · second-requests ████████ 1/1", fallback)
        notice = ask(terminal, "four")
        assert "used up" in notice
        assert "You wrote" not in notice
        # The prompt says when it opens again, and Enter asks once more.
        assert re.search(r"you \(opens \d\d:\d\d \(in .+\); Enter asks again\) › $", notice)
        run(folder, "budgets", "raise", "first-requests", "+1", "--for", "1h")
        # Another process's raise is seen within a second.
        for _ in range(20):
            time.sleep(1)
            again = ask(terminal, "")
            if "You wrote: four" in again:
                break
        assert "You wrote: four" in again
        shown = ask(terminal, "/budget")
        assert "3 of 3 requests spent, 0 held" in shown
        assert "A new conversation" in ask(terminal, "/new")
        assert "/quit leaves" in ask(terminal, "/what")
        terminal.type("/quit")
        assert terminal.ended() == 0
    assert run(folder, "ledger", "check").code == 0


def test_while_nothing_has_come_the_hold_is_seen(tmp_path: Path) -> None:
    slow(tmp_path)
    with Terminal(tmp_path, "chat", COLUMNS="150") as terminal:
        terminal.expect_prompt(PROMPT)
        terminal.type("one")
        terminal.expect("calls ▒░░░░░░░ 0/5 +1 held")
        terminal.expect("You wrote")
        terminal.press("c")
        terminal.expect("[stopped]")
        terminal.expect_prompt(PROMPT)
        terminal.type("/budget")
        assert "1 of 5 requests spent, 0 held" in terminal.expect_prompt(PROMPT)
        # At the prompt one Ctrl-C warns and the second leaves.
        terminal.press("c")
        terminal.expect("Ctrl-C again leaves")
        terminal.press("c")
        assert terminal.ended() == 0
    usage = run(tmp_path, "usage", "--json").document["usage"]
    assert [(row["attempts"], row["estimated"]) for row in usage] == [(1, 1)]
    assert run(tmp_path, "ledger", "check").code == 0


def test_the_end_of_input_leaves(folder: Path) -> None:
    with Terminal(folder, "chat") as terminal:
        terminal.expect_prompt(PROMPT)
        terminal.press("d")
        assert terminal.ended() == 0


def test_the_demo_upgrades_welcomes_serves_and_chats(tmp_path: Path) -> None:
    with Terminal(tmp_path, "demo", PORT="0") as terminal:
        terminal.expect("listens on http://127.0.0.1:")
        key = re.search(r"Bearer (sk-\S+?)'", terminal.expect("-d '{"))
        assert key is not None
        terminal.expect("TELEGRAM_BOT_TOKEN")
        terminal.expect_prompt(PROMPT)
        terminal.type("Hello")
        assert "main-requests" in terminal.expect("1/4", 120)
        terminal.expect_prompt(PROMPT)
        terminal.type("/quit")
        assert terminal.ended() == 0
        # Logs go to a file: the terminal is the conversation's.
        assert '"event"' not in terminal.screen
    assert '"event": "started"' in (tmp_path / "var/demo.log").read_text()
    assert key[1] not in (tmp_path / "var/demo.log").read_text()
    assert run(tmp_path, "budgets", "--config", "demo").out.startswith("budget")


def slow(folder: Path) -> None:
    """A provider that thinks for some seconds and then speaks slowly."""
    (folder / "sluicegate.toml").write_text(SLOW)
    assert run(folder, "db", "upgrade").code == 0


SLOW = """
[gateway]
listen = "127.0.0.1:0"
[providers.first]
api = "demo"
model = "scripted"
script = { start_s = 4.0, delay_s = 1.0 }
[chains]
default = ["first"]
[[budgets]]
name = "calls"
requests = 5
per = "rolling 10m"
"""
