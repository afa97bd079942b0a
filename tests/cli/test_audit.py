"""Whatever an operator changes by a command is a row of the audit; `sluicegate audit` shows those that are asked for."""

import asyncio
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gateway.app import App
from gateway.runs import RunState, Starter
from gateway.settings import load
from tests.cli.program import Inside, Ran

OPS = Starter("cli", "ann", admin=True)
REPORT = '[[reports]]\nname = "daily"\ncron = "0 9 * * *"\nto = "file:made"\nperiod = "day"\n'


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    return Inside(folder, monkeypatch, capsys)


def good(ran: Ran) -> Ran:
    assert ran.code == 0, ran.err
    return ran


async def prepare(folder: Path) -> tuple[str, str, str]:
    """Two runs that ask something, and one that has failed."""
    app = App(load(folder / "sluicegate.toml", {}))
    runs = []
    for number in range(3):
        run = await app.desk.start("digest", {"feeds": [f"http://127.0.0.1:1/{number}"]}, OPS)
        runs.append(run.id)
        if number < 2:
            await app.runs.ask_approval(run.id, "send", "Send it?", ["admins"])
    await app.runs.set_state(runs[2], RunState.FAILED, error="x")
    await app.stop()
    return runs[0], runs[1], runs[2]


def test_every_change_has_a_row_and_those_that_are_asked_for_are_shown(
    folder: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    file = folder / "sluicegate.toml"
    file.write_text(f"{file.read_text()}\n{REPORT}")
    yes, no, broken = asyncio.run(prepare(folder))
    good(inside("keys", "create", "laptop"))
    good(inside("keys", "revoke", "laptop"))
    good(inside("budgets", "raise", "all-money", "+1", "--for", "1h"))
    # Letters that no text has, as a file's name may: they are replaced.
    good(inside("ledger", "adjust", "all-money", "--spent", "0.5", "--reason", "the bill \udcff\0"))
    good(inside("runs", "approve", yes))
    good(inside("runs", "reject", no))
    good(inside("runs", "cancel", no))
    good(inside("runs", "retry", broken))
    good(inside("report", "--send"))
    every = good(inside("audit", "--json")).document["audit"]
    assert [(entry["action"], entry["subject"]) for entry in reversed(every)] == [
        ("create key", "laptop"),
        ("revoke key", "laptop"),
        ("raise", "all-money"),
        ("adjust", "all-money"),
        ("approved", f"run:{yes}"),
        ("rejected", f"run:{no}"),
        ("cancel", f"run:{no}"),
        ("retry", f"run:{broken}"),
        ("send report", "daily"),
    ]
    assert {entry["actor"] for entry in every} == {"cli:ann"}
    assert every[0]["detail"] == {"to": f"file:{folder / 'made'}"}

    def shown(*arguments: str) -> list[str]:
        return [entry["action"] for entry in good(inside("audit", "--json", *arguments)).document["audit"]]

    assert shown("--limit", "2") == ["send report", "retry"]
    assert shown("--action", "raise") == ["raise"]
    assert shown("--subject", "laptop") == ["revoke key", "create key"]
    assert len(shown("--by", "cli")) == len(shown("--by", "cli:ann")) == len(every)
    assert shown("--by", "cli:an") == shown("--by", "telegram") == shown("--to", "2020-01-01") == []
    assert len(shown("--from", "2020-01-01")) == len(every)
    # For people in the budget's unit and the zone of the file, with no instant in milliseconds.
    raised = every[-3]["detail"]
    assert datetime.fromisoformat(raised.pop("ends_at")) - datetime.fromisoformat(every[-3]["at"]) == timedelta(hours=1)
    assert raised == {"operation": "+", "amount": 1_000_000}
    people = good(inside("audit")).out
    assert re.search(r"raise +all-money +\+\$1\.00; until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", people, re.M)
    assert re.search(r"adjust +all-money +\+\$0\.50; reason the bill", people)
    assert re.search(r"create key +laptop +may ask, run$", people, re.M)
    for listed in (("budgets", "history", "all-money"), ("keys", "list")):
        assert re.search(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", good(inside(*listed)).out)
    told = good(inside("audit", "--limit", "1")).out
    assert "send report" in told
    assert "--limit N shows more" in told
    for wrong, says in ((("--limit", "0"), "--limit: a number from 1"), (("--from", "soon"), "--from and --to: 'soon'")):
        refused = inside("audit", *wrong)
        assert (refused.code, refused.out) == (2, "")
        assert says in refused.err
