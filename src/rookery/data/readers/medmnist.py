"""MedMNIST v2 (Yang et al., Scientific Data 2023): 28 × 28 medical images in NPZ files."""

from __future__ import annotations

import difflib

from ...errors import DataError
from ..folder import fetch, present
from .base import Table, arrays, numbers, pixels

URL = "https://zenodo.org/record/6496656/files/"
FILES = {
    "pathmnist": ("a8b06965200029087d5bd730944a56c1", (
        "adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal colon mucosa", "cancer-associated stroma",
        "colorectal adenocarcinoma epithelium")),
    "chestmnist": ("02c8a6516a18b556561a56cbdd36c4a8", (
        "atelectasis", "cardiomegaly", "effusion", "infiltration", "mass", "nodule", "pneumonia", "pneumothorax", "consolidation",
        "edema", "emphysema", "fibrosis", "pleural", "hernia")),
    "dermamnist": ("0744692d530f8e62ec473284d019b0c7", (
        "actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma", "benign keratosis-like lesions", "dermatofibroma",
        "melanoma", "melanocytic nevi", "vascular lesions")),
    "octmnist": ("c68d92d5b585d8d81f7112f81e2d0842", (
        "choroidal neovascularization", "diabetic macular edema", "drusen", "normal")),
    "pneumoniamnist": ("28209eda62fecd6e6a2d98b1501bb15f", ("normal", "pneumonia")),
    "retinamnist": ("bd4c0672f1bba3e3a89f0e4e876791e4", tuple("01234")),
    "breastmnist": ("750601b1f35ba3300ea97c75c52ff8f6", ("malignant", "normal, benign")),
    "bloodmnist": ("7053d0359d879ad8a5505303e11de1dc", (
        "basophil", "eosinophil", "erythroblast", "immature granulocytes", "lymphocyte", "monocyte", "neutrophil", "platelet")),
}


def medmnist(name: str) -> tuple[Table, Table]:
    """The training and test rows of one MedMNIST set; images of shape (1 or 3, 28, 28)."""
    parts = medmnist_parts(name)
    return parts["train"], parts["test"]


def medmnist_parts(name: str) -> dict[str, Table]:
    """The published parts `train`, `val` and `test`.

    A file NAME_reassembled.npz is read where NAME.npz is not there; its table says so in its name.
    """
    if name not in FILES:
        near = difflib.get_close_matches(name, FILES, 1)
        raise DataError(f"there is no reader for the MedMNIST set {name!r}; "
                        f"{f'did you mean {near[0]!r}?' if near else f'there are {sorted(FILES)}'}")
    checksum, classes = FILES[name]
    path = present(f"medmnist/{name}.npz", f"medmnist/{name}_reassembled.npz")
    if path is None or path.stem == name:
        path = fetch(f"medmnist/{name}.npz", f"{URL}{name}.npz?download=1", checksum)
    file, parts = arrays(path), {}
    for part in ("train", "val", "test"):
        if f"{part}_images" not in file or f"{part}_labels" not in file:
            raise DataError(f"{path} must have the arrays {part}_images and {part}_labels, but has {sorted(file)}; download it again")
        images, labels = file[f"{part}_images"], file[f"{part}_labels"]
        images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        parts[part] = Table({"inputs": pixels(images), "labels": numbers(labels)}, classes, path.stem)
    return parts
