"""Webhook mode: the secret first, 200 after the commit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.telegram_bot import TelegramBot
from tests.doubles.botapi import message
from tests.telegram_bot.rig import rig

WEBHOOK = 'mode = "webhook"\npublic_url = "https://bot.example"'


async def test_case_44_only_telegrams_secret_is_admitted(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram=WEBHOOK, start=False) as run:
        await run.start(TELEGRAM_WEBHOOK_SECRET="s3cret_with_length")
        await run.api.until(lambda: run.bot.ready)
        (call,) = run.api.made("setWebhook")
        assert call.fields["url"] == "https://bot.example/telegram/123456"
        assert call.fields["secret_token"] == "s3cret_with_length"
        assert run.bot.admits("123456", "s3cret_with_length")
        for path, secret in (
            ("123456", ""),
            ("123456", "wrong"),
            ("123456", "s3cret_with_lengthé"),
            ("other", "s3cret_with_length"),
        ):
            assert not run.bot.admits(path, secret)


async def test_an_update_by_webhook_is_stored_and_answered_once(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram=WEBHOOK, start=False) as run:
        await run.start(TELEGRAM_WEBHOOK_SECRET="s3cret_with_length")
        body = json.dumps({"update_id": 9, "message": message(1, "hello")}).encode()
        assert await run.bot.receive(body)
        assert await run.bot.receive(body)
        for nonsense in (b"", b"[]", b"{}", b'{"update_id": "x"}', b"\xff"):
            assert not await run.bot.receive(nonsense)
        await run.api.answered("Answer from the first.")
        assert run.first.meter.requests == 1


async def test_polling_admits_no_webhook(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url) as run:
        assert not run.bot.admits("123456", "")


async def test_case_44_an_empty_secret_is_no_start(tmp_path: Path, sqlite_url: str) -> None:
    async with rig(tmp_path, sqlite_url, telegram=WEBHOOK, start=False) as run:
        with pytest.raises(ConfigError):
            await run.start()
        await run.start(TELEGRAM_WEBHOOK_SECRET="s3cret_with_length")
        from dataclasses import replace

        bare = replace(run.settings, telegram=replace(run.settings.telegram, webhook_secret=""))
        with pytest.raises(ConfigError):
            TelegramBot(bare, run.database, run.store, run.dispatcher, run.clock, run.bot._desk.flows, run.reports)
