"""Folders of pictures: read, brought to one size, split by whose they are, and refused by a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rookery.data import read_images
from rookery.errors import DataError

R = np.random.default_rng(0)


def test_what_eight_bits_would_clip_is_refused(tmp_path: Path) -> None:
    """An X-ray of twelve bits is white where it is brought to eight."""
    for name, image in (("a.png", np.full((3, 3), 4000, dtype=np.uint16)), ("b.tif", np.full((3, 3), 0.5, dtype=np.float32))):
        (tmp_path / name / "ill").mkdir(parents=True)
        Image.fromarray(image).save(tmp_path / name / "ill" / name)
        with pytest.raises(DataError, match=rf"grey pictures have 8 bits, but .*{name} has more \(Pillow's mode (I;16|F)\)"):
            read_images(tmp_path / name)


def test_a_folder_named_train_is_no_class(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        Image.fromarray(R.integers(0, 256, (3, 3, 3), dtype=np.uint8)).save(tmp_path / "train" / label / "0.png")
    with pytest.raises(DataError, match=r"it has 'train', with folders, and not the other one: bring that, or name .*train"):
        read_images(tmp_path)
    assert read_images(tmp_path / "train")[0].classes == ("cat", "dog")


def test_a_folder_of_pictures_round_trips(tmp_path: Path) -> None:
    images = R.integers(0, 256, (12, 5, 4, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        (tmp_path / "pets" / ("cat", "dog")[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "pets" / ("cat", "dog")[i % 2] / f"{i // 3}_{i}.png")
    train, test = read_images(tmp_path / "pets")
    found = torch.cat([train.fields["inputs"], test.fields["inputs"]]) * 255
    assert sorted(found.round().flatten(1).tolist()) == sorted(images.transpose(0, 3, 1, 2).reshape(12, -1).astype(float).tolist())
    assert sorted(train.values("labels").tolist() + test.values("labels").tolist()) == ["cat"] * 6 + ["dog"] * 6
    train, test = read_images(tmp_path / "pets", size=3, mode="L", group=lambda path: path.name.split("_")[0])
    assert train.fields["inputs"].shape[1:] == (1, 3, 3)
    assert not set(train.values("group")) & set(test.values("group"))
    (tmp_path / "pets").rename(tmp_path / "train")
    (tmp_path / "set" / "test" / "cat").mkdir(parents=True)
    (tmp_path / "train").rename(tmp_path / "set" / "train")
    Image.fromarray(images[0]).save(tmp_path / "set" / "test" / "cat" / "0.png")
    assert [len(table) for table in read_images(tmp_path / "set")] == [12, 1]
    Image.fromarray(images[0, :2]).save(tmp_path / "set" / "train" / "dog" / "small.png")
    with pytest.raises(DataError, match=r"pictures must have one size, but .* is \(5, 4\) and small.png \(2, 4\); write size="):
        read_images(tmp_path / "set")
    (tmp_path / "set" / "test" / "cat" / "1.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1.png must be a picture that Pillow can read, but"):
        read_images(tmp_path / "set", size=4)
    with pytest.raises(DataError, match="must have one sub-folder per class with pictures in it"):
        read_images(tmp_path / "set" / "test" / "cat")
