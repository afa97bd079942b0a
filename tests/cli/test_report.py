"""`sluicegate report` and `sluicegate reports`: every format on standard output, and what became of what was sent."""

from __future__ import annotations

import csv
import io
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from gateway.cli.report import LOOK_S
from tests.cli.program import COMMAND, Inside, environment

REPORTS = """
[[reports]]
name = "daily"
cron = "0 9 * * *"
to = "file:out"
csv = true

[[reports]]
name = "chat"
cron = "0 9 * * 1"
period = "week"
to = "telegram:-100200/7"
"""


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The program in a folder whose configuration has reports."""
    file = folder / "sluicegate.toml"
    file.write_text(file.read_text() + REPORTS)
    return Inside(folder, monkeypatch, capsys)


def test_each_format_goes_to_standard_output(inside: Inside) -> None:
    assert inside("chat", "hello").code == 0
    text = inside("report")
    assert (text.code, text.out.splitlines()[0][:16]) == (0, "📊 Daily report ·")
    assert "1 call\n" in text.out
    (row,) = csv.DictReader(io.StringIO(inside("report", "--format", "csv").out))
    document = inside("report", "--format", "json").document
    assert (row["period"], int(row["tokens"])) == ("present", document["present"]["tokens"])
    assert inside("report", "--json").document["period"] == "day"
    assert inside("report", "--period", "month").out.startswith("📊 Monthly report")


def test_a_picture_goes_to_standard_output_and_never_to_a_terminal(folder: Path) -> None:
    command = [*COMMAND, "report", "--period", "week", "--format", "png"]
    drawn = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, timeout=100, check=True)
    assert drawn.stdout.startswith(b"\x89PNG\r\n\x1a\n")
    assert drawn.stdout.endswith(b"IEND\xaeB`\x82")
    assert drawn.stderr == b""


def test_sent_to_a_folder_it_is_there_and_to_a_chat_it_waits_for_a_bot(
    inside: Inside, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.report.LOOKS", 1)
    said = inside("report", "--send")
    assert (said.code, said.out) == (0, f"daily to file:{folder}/out: sent: {said.out.rpartition(': ')[2]}")
    assert sorted(path.suffix for path in (folder / "out").iterdir()) == [".csv", ".png", ".txt"]
    assert (
        inside("report", "--period", "week", "--send").out == "chat to telegram:-100200/7: waits for a running bot to send it\n"
    )
    listed = inside("reports", "--json").document["reports"]
    assert [(one["name"], one["last"]["state"]) for one in listed] == [("daily", "sent"), ("chat", "pending")]
    assert listed[0]["last"]["detail"].startswith(str(folder / "out"))
    table = inside("reports").out.splitlines()
    assert table[0].split()[:3] == ["report", "of", "a"]
    assert "waits for a running bot" in table[2]


def test_what_is_on_its_way_to_a_chat_is_waited_for(inside: Inside, folder: Path) -> None:
    assert inside("reports").code == 0
    books = folder / "var" / "sluicegate.db"

    def bot() -> None:
        """Takes what is to be sent, and is about it for a while."""
        with closing(sqlite3.connect(books, isolation_level=None, timeout=30)) as database:
            until = time.monotonic() + 60
            while not database.execute("UPDATE outbox SET state = 'uncertain' WHERE state = 'pending'").rowcount:
                assert time.monotonic() < until
                time.sleep(0.02)
            time.sleep(3 * LOOK_S)
            database.execute("UPDATE outbox SET state = 'sent'")

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(bot)
        assert inside("report", "--period", "week", "--send").out == "chat to telegram:-100200/7: sent\n"
        sending.result()


def test_what_is_asked_wrongly_is_named(inside: Inside) -> None:
    assert inside("report", "--period", "year").code == 2
    assert "'pdf' is none of text, png, csv, json" in inside("report", "--format", "pdf").err
    none = inside("report", "--period", "month", "--send")
    assert (none.code, 'no [[reports]] with period = "month"' in none.err) == (2, True)


def test_check_lists_reports(inside: Inside) -> None:
    assert [one["name"] for one in inside("check", "--json").document["reports"]] == ["daily", "chat"]
    assert "telegram:-100200/7" in inside("check").out
