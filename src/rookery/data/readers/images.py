"""A folder of pictures with one sub-folder per class."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError
from ..folder import locate
from ..split import hold_apart, split
from .base import Table, codes, numbers, pixels

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


def read_images(path: str | Path, size: int | tuple[int, int] | None = None, *, mode: str = "RGB", test_share: float = 0.25,
                seed: int = 0, group: Callable[[Path], str] | None = None, apart: str | None = None) -> tuple[Table, Table]:
    """The pictures in PATH/CLASS/…, of which a stratified share is the test part; or in PATH/train/CLASS/… and PATH/test/CLASS/….

    Pictures of unlike size are brought to `size` (height, width); `mode` is Pillow's, "RGB" or "L" (grey). `group` says from a
    picture's path whose it is (the patient), and no group has pictures in both parts. `apart` names the site that has all pictures, where
    every site chooses its test rows by itself.
    """
    root = locate(path)
    alone = [name for name in ("train", "test") if (root / name).is_dir()]
    if len(alone) == 1 and any(path.is_dir() for path in (root / alone[0]).iterdir()):
        raise DataError(f"{root} has folders of classes, or train and test with these in them; it has {alone[0]!r}, with folders, and not "
                        f"the other one: bring that, or name {root / alone[0]}")
    given = (root / "train").is_dir() and (root / "test").is_dir()
    files = [_files(part) for part in ([root / "train", root / "test"] if given else [root])]
    classes, labels = codes(*([file.relative_to(part).parts[0] for file in own]
                              for own, part in zip(files, [root / "train", root / "test"] if given else [root], strict=True)))
    owners, owned = codes(*([group(file) for file in own] for own in files)) if group is not None else ((), [])
    whole = []
    for i, own in enumerate(files):
        fields = {"inputs": pixels(_stack(own, size, mode)), "labels": numbers(labels[i])}
        if group is not None:
            fields["group"] = numbers(owned[i])
        whole.append(Table(fields, classes, root.name, {"group": owners} if group is not None else {}))
    if given:
        return whole[0], whole[1]
    if apart is not None and group is None:
        held = hold_apart(labels[0], [apart] * len(labels[0]), test_share, seed)
        return whole[0].take(~held), whole[0].take(held)
    parts = split(labels[0], test_share, seed=seed, groups=owned[0] if group is not None else None)
    return whole[0].take(parts.train), whole[0].take(parts.test)


def read_pictures(root: Path, size: tuple[int, int], mode: str) -> tuple[Tensor, list[str]]:
    """All pictures in ROOT/CLASS/… brought to one size, and the class of each."""
    files = _files(root)
    return picture_inputs(files, (1 if mode == "L" else 3, *size)), [file.relative_to(root).parts[0] for file in files]


def picture_files(root: Path) -> list[Path]:
    """All pictures below a folder, whether it has sub-folders or not."""
    files = [file for file in sorted(root.rglob("*")) if file.suffix.lower() in ENDINGS]
    if not files:
        raise DataError(f"{root} must have pictures in it ({', '.join(sorted(ENDINGS))}); it has none")
    return files


def picture_inputs(files: list[Path], shape: tuple[int, ...]) -> Tensor:
    """Pictures as rows of a shape: grey or in colours, brought to its size."""
    return pixels(_stack(files, (shape[1], shape[2]), "L" if shape[0] == 1 else "RGB"))


def decode(source: Path | bytes, name: str, mode: str, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """The bytes of one picture: (h, w) or (h, w, c)."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading pictures needs Pillow, which is not installed; pip install pillow") from None
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as picture:
            if picture.mode in ("I", "F") or picture.mode.startswith("I;"):
                raise DataError(f"grey pictures have 8 bits, but {name} has more (Pillow's mode {picture.mode}), and what of its range "
                                "matters is not known: save it with 8 bits, of the range that you want")
            converted: Any = picture.convert(mode)
            if size is not None and converted.size != size[::-1]:
                converted = converted.resize(size[::-1], Image.Resampling.BILINEAR)
            return np.array(converted, dtype=np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{name} must be a picture that Pillow can read, but {error}; repair it or take it out") from None


def _files(root: Path) -> list[Path]:
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    files = [file for one in folders for file in sorted(one.rglob("*")) if file.suffix.lower() in ENDINGS]
    if not files:
        raise DataError(f"{root} must have one sub-folder per class with pictures in it ({', '.join(sorted(ENDINGS))}); it has none")
    return files


def _stack(files: list[Path], size: int | tuple[int, int] | None, mode: str) -> NDArray[np.uint8]:
    wanted = (size, size) if isinstance(size, int) else size
    first = decode(files[0], str(files[0]), mode, wanted)
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    for i, file in enumerate(files):
        image = decode(file, str(file), mode, wanted)
        if image.shape != first.shape:
            raise DataError(f"pictures must have one size, but {files[0].name} is {first.shape[:2]} and {file.name} {image.shape[:2]}; "
                            "write size=(height, width) to bring them to one")
        images[i] = image
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
