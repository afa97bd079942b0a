"""The commands, through the real program on a real database: output, JSON, exit codes.

Those that ask a model are processes of their own; those that only look or note run in the test's.
"""

import csv
import io
import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli import outcome
from tests.cli.conftest import CONFIG
from tests.cli.program import Inside, Ran, run

BUDGET_FIELDS = ["name", "scope", "unit", "limit", "spent", "held", "left", "resets_at", "runs_out_at"]


def good(ran: Ran) -> Ran:
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The program in this process, in that folder."""
    return Inside(folder, monkeypatch, capsys)


def budget(inside: Inside, name: str) -> Any:
    (found,) = [one for one in good(inside("budgets", "--json")).document["budgets"] if one["name"] == name]
    return found


def test_an_answer_then_a_fallback_then_a_notice_with_exit_code_3(folder: Path, inside: Inside) -> None:
    first = run(folder, "chat", "--json", "one").document
    assert {"text", "provider", "model", "usage", "request_id"} <= set(first)
    assert (first["provider"], first["model"]) == ("first", "scripted")
    assert first["usage"]["total_tokens"] == first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] > 0
    streamed = good(run(folder, "chat", "--stream", "two"))
    assert "You wrote: two" in streamed.out
    assert "[first:scripted" in streamed.err
    fallback = good(run(folder, "chat", "three"))
    assert "You wrote: three" in fallback.out
    assert "budget first-requests" in fallback.err
    assert "[second:scripted" in fallback.err
    refused = run(folder, "chat", "four")
    assert (refused.code, refused.out) == (3, "")
    assert "used up" in refused.err
    assert "budget second-requests" in refused.err
    asked_again = run(folder, "chat", "--json", "four")
    assert asked_again.code == 3
    error = asked_again.document["error"]
    assert error["code"] == "budget_exhausted"
    assert error["resets_at"].endswith("Z")
    assert [cause["slot"] for cause in error["causes"]] == ["first:scripted", "second:scripted"]

    why = good(inside("why", error["request_id"], "--json")).document
    assert [(slot["provider"], slot["verdict"], slot["outcome"]) for slot in why["slots"]] == [
        ("first", "refused", "not called"),
        ("second", "refused", "not called"),
    ]
    (refusing,) = why["slots"][0]["budgets"]
    assert refusing | {"resets_at": None} == {
        "name": "first-requests",
        "scope": {"provider": "first"},
        "unit": "requests",
        "limit": 2,
        "spent": 2,
        "held": 0,
        "asked": 1,
        "resets_at": None,
    }
    answered = good(inside("why", first["request_id"]))
    assert "1. first:scripted: admitted" in answered.out
    assert "first-requests (provider=first): 0 spent + 0 held + 1 asked of 2 requests: room" in answered.out
    assert f"outcome: answered: {first['usage']['total_tokens']} tokens" in answered.out

    explained = good(inside("explain", "hello", "--user", "1002", "--json")).document
    assert [(slot["provider"], slot["verdict"]) for slot in explained["slots"]] == [("first", "refused"), ("second", "refused")]
    by_name = {one["name"]: one for one in explained["slots"][0]["budgets"]}
    assert by_name["person-day"]["scope"] == {"user": "1002"}
    assert by_name["first-requests"]["left"] == 0
    assert inside("budgets", "--json").document["budgets"][0]["spent"] == 2

    usage = good(inside("usage", "--by", "provider,surface", "--json")).document["usage"]
    assert [(row["provider"], row["surface"], row["attempts"]) for row in usage] == [("first", "cli", 2), ("second", "cli", 1)]
    rows = list(csv.DictReader(io.StringIO(good(inside("usage", "--by", "provider", "--csv")).out)))
    assert [(row["provider"], row["requests"]) for row in rows] == [("first", "2"), ("second", "1")]
    assert "first" in good(inside("usage")).out
    assert good(inside("usage", "--by", "surface,surface", "--csv")).out.startswith("surface,attempts,")
    assert good(inside("usage", "--from", "2020-01-01", "--to", "2020-01-31", "--json")).document["usage"] == []

    raised = good(inside("budgets", "raise", "first-requests", "+1", "--for", "1h", "--json")).document
    kept = good(inside("audit", "--json")).document["audit"]
    assert [(entry["action"], entry["subject"]) for entry in kept][:1] == [("raise", "first-requests")]
    assert "first-requests" in good(inside("audit", "--subject", "first-requests")).out
    lines = good(inside("usage", "--rows", "jsonl")).out.splitlines()
    assert lines
    assert len(lines) == len(list(csv.DictReader(io.StringIO(good(inside("usage", "--rows", "csv")).out))))
    assert inside("usage", "--rows", "xml").code == 2
    assert raised["budgets"][0]["limit"] == 3
    assert run(folder, "chat", "--json", "five").document["provider"] == "first"
    assert good(inside("ledger", "check", "--json")).document == {"ok": True, "differences": []}


def test_budgets_have_their_fixed_fields_and_a_plain_table(folder: Path, inside: Inside) -> None:
    listed = good(inside("budgets", "--json")).document["budgets"]
    # `person-day` has a counter for each user, and none yet.
    assert [one["name"] for one in listed] == ["first-requests", "second-requests", "all-money"]
    assert all(list(one) == BUDGET_FIELDS for one in listed)
    assert (listed[2]["unit"], listed[2]["limit"], listed[2]["left"]) == ("micro_usd", 1_500_000, 1_500_000)
    assert listed[0]["resets_at"] is None
    assert listed[1]["resets_at"].endswith("Z")
    assert [one["runs_out_at"] for one in listed] == [None, None, None]
    table = good(inside("budgets")).out.splitlines()
    heads = ["budget", "scope", "unit", "per", "used", "spent", "held", "left", "limit", "resets", "at", "runs", "out"]
    assert table[0].split() == heads
    assert "$1.50" in table[3]
    assert "\x1b" not in "".join(table)


def test_raises_are_in_the_budgets_unit_and_are_kept_as_history(folder: Path, inside: Inside) -> None:
    assert good(inside("budgets", "raise", "all-money", "+0.5", "--for", "2h")).out.startswith("all-money: +0.5 until")
    assert budget(inside, "all-money")["limit"] == 2_000_000
    good(inside("budgets", "raise", "all-money", "=3", "--for", "1h"))
    assert budget(inside, "all-money")["limit"] == 3_000_000
    history = good(inside("budgets", "history", "all-money", "--json")).document["history"]
    assert [(one["action"], one["operation"], one["amount"]) for one in history] == [
        ("raise", "=", 3_000_000),
        ("raise", "+", 500_000),
    ]
    assert all(one["actor"].startswith("cli:") for one in history)
    assert "$0.50" in good(inside("budgets", "history", "all-money")).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["budgets", "raise", "nothing", "+1", "--for", "1h"], "there is no budget 'nothing'"),
        (["budgets", "raise", "all-money", "lots", "--for", "1h"], "'lots' is not an amount"),
        (["budgets", "raise", "all-money", "+1", "--for", "soon"], "'soon' is not a span"),
        (["budgets", "history", "nothing"], "there is no budget 'nothing'"),
        (["chat", "hi", "--chain", "nowhere"], "unknown model 'nowhere'"),
        (["explain", "hi", "--chain", "nowhere"], "unknown model 'nowhere'"),
        (["chat"], "nothing to ask"),
        (["chat", "hi", "--json", "--stream"], "choose one"),
        (["usage", "--by", "weather"], "--by: 'weather' is none of"),
        (["usage", "--from", "yesterday"], "'yesterday' is neither"),
        (["usage", "--from", "0001-01-01"], "between the years 1970 and 9000"),
        (["usage", "--rows", "csv", "--by", "user"], "leave out --by"),
        (["usage", "--from", "2026-03-02", "--to", "2026-03-01"], "--from and --to: the end must be after"),
        (["ledger", "adjust", "nothing", "--spent", "1", "--reason", "x"], "there is no budget 'nothing'"),
        (["ledger", "adjust", "all-money", "--spent", "x", "--reason", "x"], "is not an amount"),
        (["ledger", "adjust", "person-day", "--spent", "1", "--reason", "x"], "say which user"),
        (["ledger", "adjust", "all-money", "--spent", "-1", "--reason", "x"], "only 0 micro-usd are spent"),
        (["ledger", "adjust", "all-money", "--spent", "1", "--reason", " "], "--reason"),
        (["keys", "create", ""], "a key's name"),
        (["serve", "--only", "cook"], "no such role"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line_with_exit_code_2(
    folder: Path, inside: Inside, arguments: list[str], says: str
) -> None:
    ran = run(folder, *arguments) if arguments[0] in ("chat", "serve") else inside(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_text_comes_from_standard_input_when_piped(folder: Path) -> None:
    assert "You wrote: from a pipe" in good(run(folder, "chat", stdin="from a pipe\n")).out


def test_a_login_link_is_one_of_the_consoles_and_never_the_same(inside: Inside) -> None:
    made = good(inside("login-link", "--json")).document
    plain = good(inside("login-link")).out.strip()
    assert made["url"] != plain
    assert made["expires_at"].endswith("Z")
    for url in (made["url"], plain):
        assert re.fullmatch(r"http://[^/]+:\d+/login/[\w-]{32}", url)


def test_keys_are_shown_once_and_stored_hashed(folder: Path, inside: Inside) -> None:
    made = good(inside("keys", "create", "ops", "--admin", "--json")).document
    assert (made["name"], made["key"].startswith("sk-")) == ("ops", True)
    plain = good(inside("keys", "create", "bob"))
    assert plain.out.strip().startswith("sk-")
    assert inside("keys", "create", "bob").code == 2
    good(inside("keys", "revoke", "bob"))
    assert inside("keys", "revoke", "bob").code == 1
    listed = good(inside("keys", "list", "--json")).document["keys"]
    assert [(one["name"], one["admin"], one["revoked_at"] is None) for one in listed] == [
        ("bob", False, False),
        ("ops", True, True),
    ]
    assert "admin" in good(inside("keys", "list")).out
    for file in folder.joinpath("var").iterdir():
        assert made["key"].encode() not in file.read_bytes()


def test_what_a_key_may_is_said_when_it_is_made_and_shown_after(folder: Path, inside: Inside) -> None:
    scope = ("--may", "read, ask", "--chain", "default", "--chain", "first")
    made = good(inside("keys", "create", "sheet", *scope, "--json")).document
    assert (made["admin"], made["may"], made["chains"]) == (False, ["ask", "read"], ["default", "first"])
    assert good(inside("keys", "create", "usual", "--json")).document["may"] == ["ask", "run"]
    assert good(inside("keys", "create", "ops", "--admin", "--json")).document["may"] == ["ask", "run", "read"]
    (ops, sheet, usual) = good(inside("keys", "list", "--json")).document["keys"]
    assert [(one["name"], one["admin"], one["may"], one["chains"]) for one in (ops, sheet, usual)] == [
        ("ops", True, ["ask", "run", "read"], []),
        ("sheet", False, ["ask", "read"], ["default", "first"]),
        ("usual", False, ["ask", "run"], []),
    ]
    shown = good(inside("keys", "list")).out
    assert "ask, read" in shown
    assert "default, first" in shown
    assert "may ask, read; chains default, first" in good(inside("audit")).out
    for wrong, said in (
        (("--may", "rule"), "there is no 'rule'"),
        (("--may", ""), "must be allowed something"),
        (("--chain", "nothing"), "unknown model 'nothing'"),
        (("--admin", "--may", "ask"), "--admin is everything"),
        (("--admin", "--chain", "default"), "--admin is everything"),
    ):
        refused = inside("keys", "create", "wrong", *wrong)
        assert refused.code == 2
        assert said in refused.err


def test_a_row_that_is_altered_is_found_by_ledger_check(folder: Path, inside: Inside) -> None:
    good(run(folder, "chat", "one"))
    assert "Right" in good(inside("ledger", "check")).out
    with sqlite3.connect(folder / "var/sluicegate.db") as database:
        database.execute("UPDATE usage SET spent_requests = spent_requests + 1")
    ran = inside("ledger", "check", "--json")
    assert ran.code == 1
    assert ran.document == {
        "ok": False,
        "differences": [{"budget": "first-requests", "counter": "", "what": "spent", "has": 1, "rows_say": 2}],
    }
    assert "not what the usage rows say" in ran.err
    assert inside("ledger", "check").out.splitlines()[1].split() == ["first-requests", "-", "spent", "1", "2"]


def test_adjustments_are_entries_with_a_reason(folder: Path, inside: Inside) -> None:
    adjusted = good(inside("ledger", "adjust", "all-money", "--spent", "+0.25", "--reason", "an old bill", "--json"))
    assert adjusted.document["budgets"][0]["spent"] == 250_000
    good(inside("ledger", "adjust", "all-money", "--spent", "-0.05", "--reason", "refunded"))
    good(inside("ledger", "adjust", "person-day", "--spent", "100", "--reason", "moved", "--scope", "user=1002"))
    assert budget(inside, "all-money")["spent"] == 200_000
    assert budget(inside, "person-day") | {"resets_at": None, "runs_out_at": None} == {
        "name": "person-day",
        "scope": {"user": "1002"},
        "unit": "tokens",
        "limit": 40_000,
        "spent": 100,
        "held": 0,
        "left": 39_900,
        "resets_at": None,
        "runs_out_at": None,
    }
    good(inside("ledger", "check"))
    history = good(inside("budgets", "history", "all-money", "--json")).document["history"]
    assert [(one["action"], one["spent"], one["reason"]) for one in history] == [
        ("adjust", -50_000, "refunded"),
        ("adjust", 250_000, "an old bill"),
    ]


def test_check_shows_budgets_chains_and_key_sources_but_no_key(folder: Path, inside: Inside) -> None:
    plain = good(inside("check"))
    for text in ("env:PAID_KEY", "first:scripted → second:scripted", "first-requests", "$1.50", "rolling 10m", "Europe/Madrid"):
        assert text in plain.out
    found = good(inside("check", "--json"))
    assert found.document["ok"] is True
    assert found.document["chains"]["default"] == ["first:scripted", "second:scripted"]
    paid = next(one for one in found.document["providers"] if one["name"] == "paid")
    assert (paid["key_source"], paid["price"]) == ("env:PAID_KEY", "config")
    for ran in (plain, found):
        assert "very-secret" not in ran.out + ran.err


def test_check_names_an_unpriced_model_with_the_lines_that_mend_it(folder: Path, inside: Inside) -> None:
    (folder / "sluicegate.toml").write_text(CONFIG.replace("price = ", "# price = "))
    ran = inside("check", "--json")
    assert ran.code == 2
    assert ran.document["unpriced"] == ["paid:gpt-5-mini"]
    assert "[providers.paid]" in ran.err
    assert 'price = "free"' in ran.err
    assert "all-money" in ran.err
    assert ": right" not in inside("check").out
    refused = run(folder, "chat", "--chain", "costly", "--json", "hello")
    assert (refused.code, refused.document["error"]["code"]) == (1, "unpriced_model")


def test_check_names_every_mistake_at_once(folder: Path, inside: Inside) -> None:
    text = CONFIG.replace('timezone = "Europe/Madrid"', 'timezone = "Mars/Base"').replace("requests = 2", "requests = -2")
    (folder / "sluicegate.toml").write_text(text.replace('costly = ["paid"]', 'costly = ["unpaid"]'))
    ran = inside("check")
    assert (ran.code, ran.out) == (2, "")
    for text in ("timezone", "Mars/Base", "unpaid", "requests"):
        assert text in ran.err


def test_check_online_makes_one_gated_call_per_provider(folder: Path, inside: Inside) -> None:
    ran = run(folder, "check", "--online", "--json")
    assert ran.code == 1
    online = {one["name"]: one["online"] for one in ran.document["providers"]}
    assert online == {"first": True, "second": True, "paid": False}
    assert "no connection" in next(one["error"] for one in ran.document["providers"] if one["name"] == "paid")
    assert budget(inside, "first-requests")["spent"] == 1
    assert "answered" in run(folder, "check", "--online").out


@pytest.mark.parametrize("arguments", [["serve"], ["budgets"], ["chat", "hi"], ["ledger", "check"], ["keys", "list"]])
def test_a_database_that_is_behind_is_refused_by_name(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "sluicegate.toml").write_text(CONFIG)
    ran = run(tmp_path, *arguments, PAID_KEY="k-1234567")
    assert (ran.code, ran.out) == (1, "")
    assert "sluicegate db upgrade" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_every_command_that_is_told_works_as_it_stands(tmp_path: Path) -> None:
    """Copied into the same terminal, whichever configuration it was told for."""
    configuration = tmp_path / "conf d" / "bot.toml"
    configuration.parent.mkdir()
    configuration.write_text('[providers.script]\napi = "demo"\nmodel = "scripted"\n[chains]\ndefault = ["script"]\n')
    for name in ("demo", "conf d/bot.toml"):
        behind = run(tmp_path, "runs", "--config", name)
        assert behind.code == 1
        good(run(tmp_path, *told(behind.err, "run ")))
        workflows = good(run(tmp_path, "workflows", "--config", name))
        start = [word for word in told(workflows.out, "Start one: ") if word not in ("--follow", "--set", "parameter=value")]
        started = good(run(tmp_path, *[word.replace("NAME", "clone_petroserver") for word in start]))
        assert told(started.err, "no worker is running: ") == ["serve", "--config", name]
        assert good(run(tmp_path, "runs", "--config", name)).out.count("queued") == 1
    beside = run(tmp_path, "workflows", SLUICEGATE_CONFIG="conf d/bot.toml")
    assert "--config" not in beside.out, "the environment names it for the next command too"


def told(said: str, before: str) -> list[str]:
    """The arguments of the command that stands behind some words, as a shell reads them."""
    command = said.partition(before)[2].lstrip("`").partition("\n")[0].partition("`")[0]
    return shlex.split(command)[1:]


def test_db_upgrade_says_where_it_stands(folder: Path, inside: Inside) -> None:
    assert "the newest" in good(inside("db", "upgrade")).out


def test_nothing_is_known_of_a_strange_request(folder: Path, inside: Inside) -> None:
    ran = inside("why", "req_nobody", "--json")
    assert (ran.code, ran.document) == (1, {"request_id": "req_nobody", "slots": []})


def test_a_notice_is_in_the_persons_language(folder: Path) -> None:
    (folder / "sluicegate.toml").write_text(
        CONFIG.replace("requests = 2", "requests = 0").replace("requests = 1", "requests = 0")
    )
    refused = run(folder, "chat", "hola", LANG="es_ES.UTF-8")
    assert refused.code == 3
    assert not refused.err.startswith("⏳ The")
    json.dumps(refused.err)


def test_a_file_that_is_no_database_is_said_plainly(folder: Path, inside: Inside) -> None:
    (folder / "var/sluicegate.db").write_bytes(b"this is not a database, and long enough to be looked at as one" * 100)
    ran = inside("budgets")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "sluicegate: the ledger is unavailable: file is not a database\n"


def test_an_error_of_ours_is_one_line_and_a_traceback_only_with_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> int:
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(typer.Exit) as left:
        outcome.run(broken)
    assert left.value.exit_code == 1
    assert capsys.readouterr().err == ("sluicegate: unexpected RuntimeError: first line (`sluicegate --debug …` shows where)\n")
    monkeypatch.setattr(outcome.Debug, "on", True)
    with pytest.raises(RuntimeError):
        outcome.run(broken)
