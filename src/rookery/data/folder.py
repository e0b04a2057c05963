"""The data folder: publishers' files as they are distributed, fetched once and checked once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
import tempfile
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from ..errors import DataError

_CHUNK = 1 << 20


def folder() -> Path:
    """Where data files are looked for: $ROOKERY_DATA, else `rookery` in the user's cache folder."""
    own = os.environ.get("ROOKERY_DATA")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rookery"


def present(*names: str) -> Path | None:
    """The first of these files or folders that is in the data folder."""
    return next((path for name in names if (path := folder() / name).exists()), None)


def locate(path: str | Path) -> Path:
    """A user's own file or folder: as written, else inside the data folder."""
    for candidate in (Path(path).expanduser(), folder() / path):
        if candidate.exists():
            return candidate
    raise DataError(f"there is no file {str(path)!r}, neither here nor in the data folder {str(folder())!r}; "
                    "write its full path, or set ROOKERY_DATA to the folder it is in")


def fetch(name: str, url: str, checksum: str, *, remade: bool = False) -> Path:
    """The file `name` of the data folder, downloaded from its publisher if it is not there.

    `checksum` is the published md5 or sha256. A file that is there is checked once, and again when it changes. With `remade` a
    file that is there may have other bytes (an archive packed anew): its reader checks the contents.
    """
    path = folder() / name
    if not path.exists():
        _download(path, name, url, checksum)
    elif not remade and not _remembered(path, checksum):
        found = _digest(path, checksum)
        if found != checksum:
            raise DataError(f"{path} must have the published checksum {checksum}, but has {found}; "
                            f"delete it and download it again from {url}")
        _remember(path, checksum)
    return path


def members(archive: str, url: str, checksum: str, names: Sequence[str]) -> dict[str, bytes]:
    """Files of a publisher's tar archive, by their path in it; from the unpacked folder if that is in the data folder."""
    unpacked = folder() / Path(names[0]).parts[0]
    found: dict[str, bytes] = {}
    if unpacked.is_dir():
        found = {name: (folder() / name).read_bytes() for name in names if (folder() / name).is_file()}
    else:
        unpacked = fetch(archive, url, checksum)
        with tarfile.open(unpacked) as tar:
            for info in tar:  # in their order, and no further than needed: the rest of an archive can be gigabytes
                name = info.name.removeprefix("./")
                stream = tar.extractfile(info) if name in names else None
                if stream is not None:
                    found[name] = stream.read()
                if len(found) == len(names):
                    break
    for name in names:
        if name not in found:
            raise DataError(f"{unpacked} must hold {name!r}, and does not; delete it and unpack {archive} from {url} again")
    return {name: found[name] for name in names}


def _download(path: Path, name: str, url: str, checksum: str) -> None:
    """To a name of its own in the same folder, so that a file under its right name is always whole."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False) as target:
            part = Path(target.name)
            with urllib.request.urlopen(url, timeout=30) as response:
                while chunk := response.read(_CHUNK):
                    target.write(chunk)
        found = _digest(part, checksum)
        if found != checksum:
            raise DataError(f"the download of {name!r} from {url} must have the checksum {checksum}, but has {found}; "
                            f"try again, or put the right file into {path.parent} yourself")
        os.replace(part, path)
    except (OSError, HTTPException) as error:
        raise DataError(f"{path.name!r} is not in the data folder and could not be downloaded ({error}); download {url} elsewhere and "
                        f"put it into {path.parent}, or set ROOKERY_DATA to a folder that has {name!r}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    _remember(path, checksum)


def _digest(path: Path, checksum: str) -> str:
    """The file's md5 or sha256, whichever `checksum` is."""
    if len(checksum) not in (32, 64):
        raise DataError(f"a checksum is an md5 (32 hexadecimal digits) or a sha256 (64), not {checksum!r}")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5" if len(checksum) == 32 else "sha256").hexdigest()


def _sidecar(path: Path) -> Path:
    return path.with_name(f".{path.name}.checked")


def _stamp(path: Path, checksum: str) -> str:
    stat = path.stat()
    return f"{checksum} {stat.st_size} {stat.st_mtime_ns}\n"


def _remembered(path: Path, checksum: str) -> bool:
    sidecar = _sidecar(path)
    return sidecar.is_file() and sidecar.read_text(encoding="utf-8", errors="replace") == _stamp(path, checksum)


def _remember(path: Path, checksum: str) -> None:
    with contextlib.suppress(OSError):  # in a folder we may only read it is checked again next time
        _sidecar(path).write_text(_stamp(path, checksum), encoding="utf-8")
