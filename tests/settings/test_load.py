"""What a good file becomes, and what stops the start."""

from decimal import Decimal
from pathlib import Path

import pytest

from gateway.budget import Calendar, Lifetime, Rolling, Unit
from gateway.chat import Slot
from gateway.errors import ConfigError, UnknownTarget
from gateway.settings import Settings, load

FULL = """
[gateway]
database_url = "sqlite:///var/sluicegate.db"
timezone     = "Europe/Madrid"
listen       = "127.0.0.1:8081"

[defaults]
max_output_tokens = 1000
min_reply_tokens  = 50

[telegram]
admins        = [1001]
allowed_users = [1002, 1003]
allowed_chats = [-100200]
groups        = "all"

[providers.moonshot]
api      = "openai"
base_url = "https://api.moonshot.ai/v1/"
api_key  = "env:MOONSHOT_API_KEY"
model    = "kimi-k2.6"
aliases  = ["kimi"]
context_tokens = 262144
max_output_tokens = 4096
timeout_s = 60.5
first_token_timeout_s = 20
image_tokens = 1500

[providers.moonshot.models."kimi-k3"]
context_tokens = 300_000
first_token_timeout_s = 90

[providers.groq]
api      = "openai"
base_url = "https://api.groq.com/openai/v1"
api_key  = "env:GROQ_API_KEY"
model    = "llama-3.3-70b-versatile"
price    = { input = 0.59, output = 0.79 }

[providers.home]
api      = "openai"
base_url = "http://127.0.0.1:11434/v1"
model    = "qwen3:8b"
price    = "free"

[chains]
default = ["kimi", "groq", "home"]
deep    = ["moonshot:kimi-k3", "home:qwen3:8b"]

[[budgets]]
name     = "moonshot-hour"
provider = "kimi"
tokens   = 250_000
per      = "rolling 1h"
warn_at  = [0.95, 0.8]

[[budgets]]
name   = "person-day"
label  = "your allowance"
user   = "*"
tokens = 40_000
per    = "day"
resets = "06:00"
limits = { "1002" = 150_000, guests = 0 }

[[budgets]]
name  = "deep-money"
model = "kimi:kimi-k3"
usd   = 1.25
per   = "month"

[[budgets]]
name     = "ever"
user     = 1002
requests = 0
per      = "lifetime"
"""
SECRETS = {"MOONSHOT_API_KEY": "sk-moon-secret", "GROQ_API_KEY": "gsk-secret"}


def read(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    (tmp_path / "sluicegate.toml").write_text(text)
    return load(tmp_path / "sluicegate.toml", SECRETS if environ is None else environ)


def problems(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, environ)
    return [str(problem) for problem in caught.value.problems]


def with_budget(lines: str) -> str:
    return FULL + f'\n[[budgets]]\nname = "b"\n{lines}\n'


MINIMAL = '[providers.home]\napi = "openai"\nmodel = "qwen3"\nbase_url = "http://127.0.0.1:1/v1"\n'


def test_a_full_file_becomes_settings(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)
    assert settings.path == tmp_path / "sluicegate.toml"
    assert settings.database_url == f"sqlite:///{tmp_path}/var/sluicegate.db"
    assert (settings.host, settings.port, settings.zone.key) == ("127.0.0.1", 8081, "Europe/Madrid")
    assert settings.chains == {
        "default": (Slot("moonshot", "kimi-k2.6"), Slot("groq", "llama-3.3-70b-versatile"), Slot("home", "qwen3:8b")),
        "deep": (Slot("moonshot", "kimi-k3"), Slot("home", "qwen3:8b")),
    }
    moonshot = settings.providers["moonshot"]
    assert (moonshot.base_url, moonshot.api_key, moonshot.key_source) == (
        "https://api.moonshot.ai/v1",
        "sk-moon-secret",
        "env:MOONSHOT_API_KEY",
    )
    assert (settings.telegram.allowed_chats, settings.telegram.groups) == ((-100200,), "all")


def test_a_model_has_its_own_keys_and_its_providers_for_the_rest(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)
    own = settings.model(Slot("moonshot", "kimi-k2.6"))
    assert (own.context_tokens, own.max_output_tokens, own.timeout_s, own.image_tokens) == (262144, 4096, 60.5, 1500)
    further = settings.model(Slot("moonshot", "kimi-k3"))
    assert (further.context_tokens, further.max_output_tokens, further.timeout_s) == (300_000, 4096, 60.5)
    assert (further.first_token_timeout_s, further.image_tokens) == (90, None)
    unlisted = settings.model(Slot("moonshot", "kimi-k9"))
    assert (unlisted.context_tokens, unlisted.max_output_tokens, unlisted.timeout_s) == (None, 1000, 60.5)


def test_prices_stay_exact_and_cached_input_costs_what_input_does(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)
    price = settings.model(Slot("groq", "llama-3.3-70b-versatile")).price
    assert price is not None
    assert (price.input, price.cached_input, price.cache_write) == (Decimal("0.59"),) * 3
    assert price.output == Decimal("0.79")
    assert settings.model(Slot("home", "qwen3:8b")).free


def test_budgets_have_units_windows_and_exceptions(tmp_path: Path) -> None:
    budgets = read(tmp_path, FULL).budgets.by_name
    hour, day, money, ever = (budgets[name] for name in ("moonshot-hour", "person-day", "deep-money", "ever"))
    assert hour.scope == {"provider": "moonshot"}
    assert hour.warn_at == (0.8, 0.95)
    assert isinstance(hour.window, Rolling)
    assert (hour.window.length_s, hour.window.text) == (3600, "rolling 1h")
    assert isinstance(day.window, Calendar)
    assert day.window.signature == "day Europe/Madrid 06:00:00"
    assert day.exceptions == {"1002": 150_000, "guests": 0}
    assert (money.unit, money.limit) == (Unit.MICRO_USD, 1_250_000)
    assert money.scope == {"provider": "moonshot", "model": "kimi-k3"}
    assert (ever.scope, ever.limit, ever.window) == ({"user": "1002"}, 0, Lifetime())


def test_case_08_an_alias_and_the_name_are_one_target(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)
    assert settings.slots("kimi") == settings.slots("moonshot") == ("moonshot", (Slot("moonshot", "kimi-k2.6"),))
    assert settings.slots("kimi:kimi-k3") == ("moonshot:kimi-k3", (Slot("moonshot", "kimi-k3"),))
    assert settings.slots("home:qwen3:8b")[1] == (Slot("home", "qwen3:8b"),)
    with pytest.raises(UnknownTarget) as caught:
        settings.slots("kimmi")
    assert "deep" in caught.value.known


def test_one_provider_is_enough(tmp_path: Path) -> None:
    settings = read(tmp_path, MINIMAL, {})
    assert settings.chains == {"default": (Slot("home", "qwen3"),)}
    assert (settings.port, settings.zone.key, settings.budgets.all) == (8080, "UTC", ())
    assert settings.model(Slot("home", "qwen3")).max_output_tokens == 2048


def test_every_bad_key_is_named_at_once_with_its_place(tmp_path: Path) -> None:
    text = """
        chain = 1
        [gateway]
        timezone = "Europe/Madird"
        listen = "8080"
        [providers.groq]
        api = "opnai"
        model = "m"
        base_url = "ftp://x"
        timeot_s = 3
        max_attempts = 0
        aliases = ["default", "groq"]
        price = { input = -1, outptu = 2 }
        [providers.groq.models."other one"]
        contxt_tokens = 3
        [chains]
        default = ["grok", "groq:unknown", "loop"]
        loop = ["default"]
        empty = []
        [[budgets]]
        name = "a"
        tokens = -5
        usd = 1
        per = "fortnight"
        [[budgets]]
        provider = "nobody"
        tokens = -5
        per = "rolling 0h"
        resets = "25:00"
        [[budgets]]
        name = "a"
        requests = true
        per = "hour"
        resets = "06:00"
        limits = { guests = 3 }
        [reports]
    """
    found = problems(tmp_path, text, {"SLUICEGATE_CONFG": "x"})
    for expected in (
        "sluicegate.toml: chain: unknown key",
        'sluicegate.toml: gateway.timezone: no such time zone "Europe/Madird", did you mean "Europe/Madrid"?',
        "sluicegate.toml: gateway.listen: must be",
        'sluicegate.toml: providers.groq.api: must be one of openai, anthropic, local, demo, did you mean "openai"?',
        'sluicegate.toml: providers.groq.timeot_s: unknown key, did you mean "timeout_s"?',
        "sluicegate.toml: providers.groq.max_attempts: must be at least 1",
        'sluicegate.toml: providers.groq.aliases: "groq" is given twice',
        "sluicegate.toml: providers.groq.price.input: must not be negative",
        'sluicegate.toml: providers.groq.price.outptu: unknown key, did you mean "output"?',
        "sluicegate.toml: providers.groq.price.output: is required",
        'sluicegate.toml: providers.groq.models."other one".contxt_tokens: unknown key, did you mean "context_tokens"?',
        "sluicegate.toml: chains.default: the name is taken by the provider groq",
        'sluicegate.toml: chains.default: unknown provider "grok", did you mean "groq"?',
        'sluicegate.toml: chains.default: unknown model "unknown" of groq',
        'sluicegate.toml: chains.default: "loop" is a chain',
        "sluicegate.toml: chains.empty: is empty",
        "sluicegate.toml: budgets.a: needs exactly one of tokens, usd, requests: tokens and usd are given",
        "sluicegate.toml: budgets.a.per: must be one of",
        "sluicegate.toml: budgets[2].name: is required",
        'sluicegate.toml: budgets[2].provider: unknown provider "nobody"',
        "sluicegate.toml: budgets[2].tokens: must not be negative",
        "sluicegate.toml: budgets[2].per: a rolling window is at least 1m",
        "sluicegate.toml: budgets[2].resets: must be a local time",
        "sluicegate.toml: budgets.a.name: is used by an earlier budget",
        "sluicegate.toml: budgets.a.requests: must be a whole number, not true or false",
        'sluicegate.toml: budgets.a.resets: has no meaning with per = "hour"',
        "sluicegate.toml: budgets.a.limits: is for budgets with a",
        "sluicegate.toml: reports",
        'environment: SLUICEGATE_CONFG: unknown name, did you mean "SLUICEGATE_CONFIG"?',
    ):
        assert any(line.startswith(expected) for line in found), expected + "\n---\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('tokens = -1\nper = "day"', "budgets.b.tokens: must not be negative"),
        ('usd = -0.5\nper = "day"', "budgets.b.usd: must not be negative"),
        ('usd = 0.0000001\nper = "day"', "budgets.b.usd: must not be finer"),
        ('usd = nan\nper = "day"', "budgets.b.usd: must be a number of US dollars"),
        ('usd = inf\nper = "day"', "budgets.b.usd: must be a number of US dollars"),
        ('tokens = 1.5\nper = "day"', "budgets.b.tokens: must be a whole number, not a decimal number"),
        ("tokens = 1", "budgets.b.per: is required"),
        ('tokens = 1\nper = "rolling 400d"', "budgets.b.per: a rolling window"),
        ('tokens = 1\nper = "day"\nsurface = "telegramm"', 'budgets.b.surface: must be * or one of telegram, http'),
        ('tokens = 1\nper = "day"\nmodel = "kimi-k4"', 'budgets.b.model: no provider has a model "kimi-k4"'),
        ('tokens = 1\nper = "day"\nprovider = "groq"\nmodel = "kimi:kimi-k3"', "budgets.b.model: names the provider moonshot"),
        ('tokens = 1\nper = "day"\nchain = "dep"', 'budgets.b.chain: unknown chain "dep", did you mean "deep"?'),
        ('tokens = 1\nper = "day"\nuser = true', "budgets.b.user: must be a name"),
        ('tokens = 1\nper = "day"\nchat = "*"\nlimits = { guests = 1 }', 'budgets.b.limits.guests: is for budgets with user'),
        ('tokens = 1\nper = "day"\nuser = "*"\nlimits = { "7" = -1 }', "budgets.b.limits.7: must not be negative"),
        ('tokens = 1\nper = "day"\nwarn_at = [80]', "budgets.b.warn_at: must be a list of parts"),
    ],
)  # fmt: skip
def test_case_06_a_bad_budget_stops_the_start(tmp_path: Path, lines: str, expected: str) -> None:
    found = problems(tmp_path, with_budget(lines))
    assert len(found) == 1
    assert found[0].startswith(f"sluicegate.toml: {expected}"), found


def test_exceptions_of_a_provider_budget_know_aliases(tmp_path: Path) -> None:
    settings = read(tmp_path, with_budget('provider = "*"\ntokens = 5\nper = "day"\nlimits = { kimi = 0 }'))
    assert settings.budgets.by_name["b"].exceptions == {"moonshot": 0}


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, '[gateway]\ntimezone = "UTC\n')
    assert line.startswith("sluicegate.toml: is not valid TOML")
    assert "line 2" in line


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"SLUICEGATE_CONFIG": str(tmp_path / "gone.toml")})
    assert "gone.toml" in str(caught.value)
    assert "sluicegate init" in str(caught.value)


def test_a_chain_may_not_be_called_like_a_provider_or_alias(tmp_path: Path) -> None:
    assert problems(tmp_path, FULL.replace("deep    =", "kimi    =")) == [
        "sluicegate.toml: chains.kimi: the name is taken by the provider moonshot"
    ]
    assert problems(tmp_path, FULL.replace('aliases  = ["kimi"]', 'aliases  = ["kimi", "groq"]')) == [
        'sluicegate.toml: providers.moonshot.aliases: "groq" already means groq'
    ]


def test_the_scripted_provider_is_told_what_to_do_in_plain_values(tmp_path: Path) -> None:
    text = (
        '[providers.d]\napi = "demo"\nmodel = "m"\nscript = { delay_s = 0.5, stall_s = 0, fail = "refused", first_n_fail = 2 }\n'
    )
    assert read(tmp_path, text, {}).providers["d"].script == {
        "delay_s": 0.5,
        "stall_s": 0.0,
        "fail": "refused",
        "first_n_fail": 2,
    }
    wrong = text.replace("delay_s = 0.5", "delay = 1, start_s = -1").replace('"refused"', '"sometimes"')
    assert [line.split(": ")[1] for line in problems(tmp_path, wrong, {})] == [
        "providers.d.script.start_s",
        "providers.d.script.fail",
        "providers.d.script.delay",
    ]
    assert problems(tmp_path, MINIMAL + 'script = { reply = "x" }\n', {}) == [
        'sluicegate.toml: providers.home.script: belongs to api = "demo" only'
    ]
