"""Files of a run's folder: there as a whole or not at all, and written by one process at a time."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from ..errors import WriteError

LOCK = ".lock"
_MINE: dict[Path, int] = {}  # the folders that this process holds, and the thread that does


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; the file takes the other's place once it is whole, and what was there stays if it fails."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise refusal(path, error) from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, or leave the one that is there."""
    with aside(path) as beside:
        beside.write_bytes(content if isinstance(content, bytes) else content.encode())


def append(path: Path, line: str) -> None:
    """Add a line, or leave the file as it was."""
    Lines(path).append(line)


class Lines:
    """A file that grows by whole lines. It stays open; one that was moved or deleted meanwhile is made anew."""

    def __init__(self, path: Path) -> None:
        self.path, self._text, self._open, self._file = path, os.fspath(path), -1, (0, 0)

    def append(self, line: str) -> None:
        """Add a line, or leave the file as it was. A last line that is not whole, by a process that was killed, is ended first."""
        try:
            size, content = self._size(), f"{line}\n".encode(errors="replace")  # a lone surrogate cannot be written
            try:
                while content:
                    content = content[os.write(self._open, content):]
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._open, size)
                raise
        except OSError as error:
            self.close()
            raise refusal(self.path, error) from None

    def _size(self) -> int:
        """How long the file is, which is open from here on."""
        if self._open >= 0:
            try:
                found = os.stat(self._text)
                if (found.st_ino, found.st_dev) == self._file:
                    return found.st_size
            except FileNotFoundError:
                pass
            self.close()
        self._open = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        own = os.fstat(self._open)
        size, self._file = own.st_size, (own.st_ino, own.st_dev)
        if size and os.pread(self._open, 1, size - 1) != b"\n":
            size += os.write(self._open, b"\n")
        return size

    def close(self) -> None:
        if self._open >= 0:
            os.close(self._open)
        self._open = -1

    __del__ = close


def refusal(path: Path, error: Exception) -> WriteError:
    """The sentence about a file that could not be written."""
    return WriteError(f"{path} could not be written ({getattr(error, 'strerror', None) or error})")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside, the folder is this thread's, and another run into it is refused. The lock goes with the process, however that ends."""
    place, me = folder.resolve(), threading.get_ident()
    if _MINE.get(place) == me:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab+", buffering=0)
    except (FileExistsError, NotADirectoryError):
        raise WriteError(f"{folder} is not a folder, and a run needs one of its own; name another with --out") from None
    except OSError as error:
        raise WriteError(f"{folder} cannot be written to ({error.strerror}); name another folder with --out") from None
    with file:
        if not _locked(file.fileno(), fcntl.LOCK_EX):
            file.seek(0)
            raise WriteError(f"{folder} is in use by another run (process {file.read().decode() or 'unknown'}); wait for its end, "
                             "or name another folder with --out")
        file.truncate(0)
        with suppress(OSError):  # on a full disk the lock holds all the same
            file.write(str(os.getpid()).encode())
        for left in folder.glob(".*.part"):  # by a process that was killed
            left.unlink(missing_ok=True)
        _MINE[place] = me
        try:
            yield
        finally:
            del _MINE[place]


def in_use(folder: Path) -> bool:
    """Whether a run is under way in a folder."""
    try:
        with (folder / LOCK).open() as file:
            return not _locked(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _locked(number: int, kind: int) -> bool:
    """Whether the lock was free; where a file system has no locks it always is."""
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
