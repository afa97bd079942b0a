"""Who may start which workflow, what starts by the clock, and reports, and who gets them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.settings import WorkflowRules, demo
from tests.settings.test_load import MINIMAL, problems, read

WORKFLOWS = """
[gateway]
timezone = "Europe/Madrid"
[workflows]
path = "workflows"
[workflows.clone_petroserver]
who = ["admins", 1002, "1003", "users"]
allow_repos = ["https://github.com/acme/*"]
[[schedules]]
name = "morning-digest"
cron = "0 8 * * 1-5"
workflow = "digest"
params = { topic = "oil prices", most = 3, share = 0.5, since = 2026-01-02, feeds = ["a"], deep = { x = 0.25 } }
to = "telegram:1001"
[[schedules]]
name = "nightly"
cron = "30 2 * * *"
workflow = "clone_petroserver"
[[reports]]
name = "daily"
cron = "0 9 * * *"
to = "telegram:-100200/7"
period = "day"
"""


def test_rules_and_schedules_become_settings(tmp_path: Path) -> None:
    settings = read(tmp_path, MINIMAL + WORKFLOWS, {})
    assert settings.workflows.path == tmp_path / "workflows"
    assert settings.workflows.of("clone_petroserver") == WorkflowRules(
        ("admins", "1002", "1003", "users"), ("https://github.com/acme/*",)
    )
    assert settings.workflows.of("digest") == WorkflowRules(who=("users",), allow_repos=())
    digest, nightly = settings.schedules
    assert (digest.name, digest.workflow, digest.to) == ("morning-digest", "digest", "telegram:1001")
    # In values that JSON can hold, and 0.5 is not 0.5000000001.
    assert digest.params == {
        "topic": "oil prices",
        "most": 3,
        "share": 0.5,
        "since": "2026-01-02",
        "feeds": ["a"],
        "deep": {"x": 0.25},
    }
    # In the zone of the configuration: eight in Madrid is seven in UTC in winter.
    assert digest.cron.after(datetime(2026, 1, 2, 8, tzinfo=UTC)) == datetime(2026, 1, 5, 7, tzinfo=UTC)
    assert (nightly.params, nightly.to) == ({}, "")
    (report,) = settings.reports
    assert (report.name, report.period, report.to, report.language, report.csv) == (
        "daily",
        "day",
        "telegram:-100200/7",
        "en",
        False,
    )


def test_without_the_sections_there_are_the_samples_and_no_schedule(tmp_path: Path) -> None:
    settings = read(tmp_path, MINIMAL, {})
    assert (settings.workflows.path, settings.workflows.rules, settings.schedules) == (tmp_path / "workflows", {}, ())
    assert settings.reports == ()
    assert demo(tmp_path, False, {}).workflows.path == tmp_path / "workflows"


def test_a_folder_is_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    text = WORKFLOWS.replace('path = "workflows"', 'path = "mine"').replace("telegram:1001", "file:var/digests")
    settings = read(tmp_path, MINIMAL + text, {})
    assert settings.workflows.path == tmp_path / "mine"
    assert settings.schedules[0].to == f"file:{tmp_path}/var/digests"


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        ('path = "workflows"', 'path = "elsewhere"', "workflows.path: there is no folder"),
        ('"1003"', '"everyone"', 'workflows.clone_petroserver.who: "everyone" is neither admins, users nor a numeric id'),
        ('who = ["admins", 1002, "1003", "users"]', "who = true", "workflows.clone_petroserver.who: must be a list of"),
        ("allow_repos", "allow_repo", 'workflows.clone_petroserver.allow_repo: unknown key, did you mean "allow_repos"?'),
        ("0 8 * * 1-5", "at eight", "schedules.morning-digest.cron: must have five fields"),
        ("0 8 * * 1-5", "0 8 * * * 1-5", "schedules.morning-digest.cron: must have five fields"),
        ("0 8 * * 1-5", "0 8 * * 1-8", "schedules.morning-digest.cron: bad day-of-week"),
        ("0 8 * * 1-5", "0 8 31 2 *", "schedules.morning-digest.cron: bad day-of-month"),
        ('workflow = "digest"', "", "schedules.morning-digest.workflow: is required"),
        ('name = "nightly"', 'name = "morning-digest"', "schedules.morning-digest.name: is used by an earlier one"),
        ('name = "nightly"', 'name = "night ly"', "schedules.night ly.name: has letters, digits and . _ - only, at most 64"),
        ("cron = \"30 2 * * *\"", "", "schedules.nightly.cron: is required"),
        ("telegram:1001", "telegram:me", 'schedules.morning-digest.to: must be "telegram:CHAT"'),
        ("telegram:-100200/7", "mail:me", 'reports.daily.to: must be "telegram:CHAT"'),
        ("0 9 * * *", "0 25 * * *", "reports.daily.cron: bad hour"),
        ('period = "day"', 'period = "year"', "reports.daily.period: must be one of day, week, month"),
        ('period = "day"', 'language = "fr"', "reports.daily.language: must be one of en, es"),
        ("[[reports]]", '[[reports]]\nname = "daily"\ncron = "0 9 * * *"\nto = "file:var"\n[[reports]]',
         "reports.daily.name: is used by an earlier one of [[reports]]"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_place(tmp_path: Path, good: str, bad: str, expected: str) -> None:
    (line,) = problems(tmp_path, MINIMAL + WORKFLOWS.replace(good, bad, 1), {})
    assert line.startswith(f"sluicegate.toml: {expected}"), line


def test_parameters_of_a_schedule_are_a_table(tmp_path: Path) -> None:
    text = MINIMAL + '[[schedules]]\nname = "n"\ncron = "* * * * *"\nworkflow = "w"\nparams = "oil"\n'
    assert problems(tmp_path, text, {}) == [
        'sluicegate.toml: schedules.n.params: must be a table, such as { topic = "oil prices" }'
    ]
