"""What runs tell to "file:<folder>": each notice a text file there, and the file that goes with it beside it.

A worker files them, since it has the runs' folders. Filing one twice gives the same files, so nothing is uncertain.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import structlog

from gateway.effects import EffectError, Folder
from gateway.runs import Notice, NoticeState
from gateway.store.runs import Runs

KIND = "file"

log = structlog.get_logger(__name__)


class Filing:
    """One per worker. `runs_folder` has one folder for each run; a relative target is taken from `base`."""

    def __init__(self, runs: Runs, runs_folder: Path, base: Path) -> None:
        self._runs, self._runs_folder, self._base = runs, runs_folder, base

    async def look(self) -> None:
        """Files what is to be told. Raises LedgerUnavailable."""
        for notice in await self._runs.notices(KIND):
            try:
                path = await self._file(notice)
            except (EffectError, OSError) as error:
                log.warning("notice_not_filed", run=notice.run, step=notice.step, error=str(error))
                await self._runs.end_notice(notice.id, NoticeState.FAILED, str(error))
            else:
                await self._runs.end_notice(notice.id, NoticeState.SENT, str(path))

    async def _file(self, notice: Notice) -> Path:
        folder = Folder(self._base / notice.to.removeprefix(f"{KIND}:"))
        stem = f"{notice.run}-{re.sub(r'[^A-Za-z0-9._-]+', '-', notice.step).strip('-')}"
        if notice.file is not None:
            attached = await Folder(self._runs_folder / notice.run).read(notice.file)
            await folder.write(f"{stem}-{PurePosixPath(notice.file).name}", attached)
        return await folder.write(f"{stem}.txt", f"{notice.text}\n".encode("utf-8", "replace"))
