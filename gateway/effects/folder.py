"""The files of one run: read and written inside its folder, whatever the path says and whatever links lie there.

A path is walked part by part from the folder's own handle and no link is followed, so that neither `..` nor a link that
appears between two looks leads out.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from gateway.effects.values import EffectError

READ_MAX = 10_000_000
"""The most bytes of a file that is read whole."""
WRITE_MAX = 50_000_000
"""The most bytes of a file that is written."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """The folder of a run; it is made when something is first written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def read(self, path: str | Path, most: int = READ_MAX) -> bytes:
        """The bytes of a file. Raises EffectError: no such file, a link, larger than `most`, outside."""
        return await asyncio.to_thread(self._read, _parts(path), most)

    async def write(self, path: str | Path, data: bytes) -> Path:
        """Writes a file, whole or not at all, and the folders above it; its path. Raises EffectError."""
        return await asyncio.to_thread(self._write, _parts(path), data)

    async def remove(self, path: str | Path) -> None:
        """Removes a file, or a folder with all that is in it, if it is there. Raises EffectError."""
        await asyncio.to_thread(self._remove, _parts(path))

    def inside(self, path: str | Path) -> Path:
        """The absolute path of a relative one. Raises EffectError when it leads out; links are not looked at."""
        return self.root.joinpath(*_parts(path))

    def _read(self, parts: tuple[str, ...], most: int) -> bytes:
        with _speaking(parts), self._open_parent(parts, make=False) as parent:
            # Without O_NONBLOCK a pipe that lies there would be waited for, for ever.
            handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise EffectError(f"{_shown(parts)} is no ordinary file")
                with open(handle, "rb", closefd=False) as file:
                    data = file.read(most + 1)
            finally:
                os.close(handle)
        if len(data) > most:
            raise EffectError(f"{_shown(parts)} is larger than {most:,} bytes")
        return data

    def _remove(self, parts: tuple[str, ...]) -> None:
        with _speaking(parts), suppress(FileNotFoundError), self._open_parent(parts, make=False) as parent:
            if stat.S_ISDIR(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                shutil.rmtree(parts[-1], dir_fd=parent)
            else:
                os.unlink(parts[-1], dir_fd=parent)

    def _write(self, parts: tuple[str, ...], data: bytes) -> Path:
        if len(data) > WRITE_MAX:
            raise EffectError(f"{_shown(parts)} would be larger than {WRITE_MAX:,} bytes")
        with _speaking(parts):
            self.root.mkdir(parents=True, exist_ok=True)
            with self._open_parent(parts, make=True) as parent:
                part = f".{secrets.token_hex(8)}.part"
                handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
                try:
                    with os.fdopen(handle, "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                    # A link in its place is replaced, never followed.
                    os.replace(part, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
                except BaseException:
                    os.unlink(part, dir_fd=parent)
                    raise
        return self.root.joinpath(*parts)

    @contextmanager
    def _open_parent(self, parts: tuple[str, ...], *, make: bool) -> Iterator[int]:
        """The handle of the folder in which the last part lies."""
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=handle)
                deeper = os.open(part, _DIRECTORY, dir_fd=handle)
                os.close(handle)
                handle = deeper
            yield handle
        finally:
            os.close(handle)


def _parts(path: str | Path) -> tuple[str, ...]:
    """The parts of a path that stays inside. Raises EffectError."""
    text = os.fspath(path)
    pure = PurePosixPath(text)
    if not pure.parts or "\0" in text:
        raise EffectError(f"{text[:100]!r} names no file")
    if pure.is_absolute() or ".." in pure.parts:
        raise EffectError(f"{text[:100]!r} leads out of the run's folder: a path is relative to it, without ..")
    return pure.parts


def _shown(parts: tuple[str, ...]) -> str:
    return ascii("/".join(parts)[:100])


@contextmanager
def _speaking(parts: tuple[str, ...]) -> Iterator[None]:
    """Says what went wrong with a file in words."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise EffectError(f"{_shown(parts)} is, or lies behind, a link or a file: links are not followed") from None
        if isinstance(error, FileNotFoundError):
            raise EffectError(f"there is no file {_shown(parts)} in the run's folder") from None
        raise EffectError(f"{_shown(parts)}: {error.strerror}") from None
