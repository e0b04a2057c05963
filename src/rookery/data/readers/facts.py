"""What is known of the data sets before they are read: what a row is, how many there are, their licence, where they are and whence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .sites import FOLDER, TABLES, SiteTable

UCI = "UCI Machine Learning Repository"
UNSTATED = "not stated by its publisher"


@dataclass(frozen=True)
class Facts:
    """What is known of a data set.

    rows:  how many, of training and of test where its publisher has told them apart
    files: what is looked for in the data folder; nothing where the rows come with scikit-learn
    how:   whether it is downloaded at its first use, put there by hand, or comes with scikit-learn
    """

    about: str
    rows: str
    licence: str
    publisher: str
    files: tuple[str, ...] = ()
    how: Literal["scikit-learn", "download", "hand"] = "scikit-learn"
    sites: int | None = None


def _medical(name: str, about: str, train: str, test: str, licence: str = "CC BY 4.0") -> Facts:
    return Facts(f"{about}, 28 × 28 pixels", f"{train} + {test}", licence, "MedMNIST v2, Zenodo", (f"medmnist/{name}.npz",), "download")


def _sparse(name: str, about: str, rows: str) -> Facts:
    return Facts(about, rows, UNSTATED, "the LIBSVM collection, C.-C. Chang, C.-J. Lin", (f"libsvm/{name}", f"libsvm/{name}.t"), "hand")


def _idx(name: str) -> tuple[str, ...]:
    return tuple(f"{name}/{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"))


def _table(name: str, spec: SiteTable) -> Facts:
    rows, sites = _SITES[name]
    files = (spec.file or f"{name}.csv", spec.test, spec.join[0] if spec.join else "")
    return Facts(spec.about, f"{rows:_}".replace("_", " "), spec.licence, spec.publisher,
                 tuple(f"{FOLDER}/{file}" for file in files if file), "hand", sites)


_SITES = {  # rows that count, and sites
    "stroke": (19_433, 466), "covid": (15_223, 88), "lending": (9_857, 50), "heart": (920, 4), "precincts": (43_699, 5),
    "dialysis": (4_993, 67), "bank-marketing": (45_211, 12), "sba": (895_661, 5_801), "flights": (336_776, 16), "cps": (280_005, 51),
    "kdd-census": (299_285, 24), "brfss": (287_959, 13)}

FACTS: dict[str, Facts] = {
    "digits": Facts("handwritten digits, 8 × 8 pixels, ten classes", "1 797", "CC BY 4.0", f"E. Alpaydin, C. Kaynak, {UCI}"),
    "breast-cancer": Facts("a tumour is malignant or benign, from 30 measurements", "569", "CC BY 4.0",
                           f"W. Wolberg, O. Mangasarian, N. Street, {UCI}"),
    "wine": Facts("three cultivars, from 13 measurements", "178", "CC BY 4.0", f"S. Aeberhard, M. Forina, {UCI}"),
    "iris": Facts("three irises, from 4 measurements", "150", "CC BY 4.0", f"R. A. Fisher, {UCI}"),
    "adult": Facts("does a person earn more than 50 000 dollars a year? Six numbers and eight categories; sex and race are kept",
                   "32 561 + 16 281", "CC BY 4.0", f"B. Becker, R. Kohavi, {UCI}", ("adult/adult.data", "adult/adult.test"), "download"),
    "mnist": Facts("handwritten digits, 28 × 28 pixels, ten classes", "60 000 + 10 000", "CC BY-SA 3.0", "Y. LeCun, C. Cortes, C. Burges",
                   _idx("mnist"), "download"),
    "fashion-mnist": Facts("clothes, 28 × 28 pixels, ten classes", "60 000 + 10 000", "MIT", "H. Xiao, K. Rasul, R. Vollgraf, Zalando",
                           _idx("fashion-mnist"), "download"),
    "cifar10": Facts("colour photographs, 32 × 32 pixels, ten classes", "50 000 + 10 000", UNSTATED, "A. Krizhevsky, University of Toronto",
                     ("cifar-10-binary.tar.gz",), "download"),
    "cifar100": Facts("colour photographs, 32 × 32 pixels, a hundred classes in twenty groups", "50 000 + 10 000", UNSTATED,
                      "A. Krizhevsky, University of Toronto", ("cifar-100-binary.tar.gz",), "download"),
    "stl10": Facts("colour photographs, 96 × 96 pixels, ten classes", "5 000 + 8 000", UNSTATED, "A. Coates, H. Lee, A. Ng, Stanford",
                   ("stl10_binary.tar.gz",), "download"),
    "omniglot": Facts("characters of 50 alphabets, each drawn 20 times, 28 × 28 pixels, 1 623 classes", "19 280 + 13 180", "MIT",
                      "B. Lake, R. Salakhutdinov, J. Tenenbaum", ("omniglot/images_background.zip", "omniglot/images_evaluation.zip"),
                      "download"),
    "a9a": _sparse("a9a", "Adult in 123 columns of 0 and 1", "32 561 + 16 281"),
    "w8a": _sparse("w8a", "is a web page about a topic? 300 key words", "49 749 + 14 951"),
    "ijcnn1": _sparse("ijcnn1", "does an engine misfire? 22 numbers", "49 990 + 91 701"),
    "mammography": Facts("microcalcifications, 6 numbers, 2.3 % positive", "11 183", UNSTATED, "K. Woods et al., OpenML",
                         ("tabular/mammography.csv",), "hand"),
    "oil-spill": Facts("oil slicks on radar images, 48 numbers, 4.4 % positive", "937", UNSTATED, "M. Kubat, R. Holte, S. Matwin, OpenML",
                       ("tabular/oil-spill.csv",), "hand"),
    "phoneme": Facts("nasal or oral vowels, 5 numbers, 29 % positive", "5 404", UNSTATED, "the ELENA project, OpenML",
                     ("tabular/phoneme.csv",), "hand"),
    "page-blocks": Facts("text or not among blocks of a page, 10 numbers, 10.2 % positive", "5 472", "CC BY 4.0",
                         f"D. Malerba, {UCI}, in KEEL's form", ("tabular/page-blocks0.dat",), "hand"),
    "satlog": Facts("ground seen by Landsat, 36 numbers, six classes", "4 435 + 2 000", "CC BY 4.0", f"A. Srinivasan, {UCI}",
                    ("tabular/sat.trn", "tabular/sat.tst"), "hand"),
    "pathmnist": _medical("pathmnist", "tissue of the colon, nine classes", "89 996", "7 180"),
    "chestmnist": _medical("chestmnist", "X-rays of chests, fourteen findings, several a row", "78 468", "22 433"),
    "dermamnist": _medical("dermamnist", "lesions of the skin, seven classes", "7 007", "2 005", "CC BY-NC 4.0"),
    "octmnist": _medical("octmnist", "retinas in optical coherence tomography, four classes", "97 477", "1 000"),
    "pneumoniamnist": _medical("pneumoniamnist", "X-rays of children's chests, pneumonia or not", "4 708", "624"),
    "retinamnist": _medical("retinamnist", "retinas, five grades of diabetic retinopathy", "1 080", "400"),
    "breastmnist": _medical("breastmnist", "ultrasound of breasts, malignant or not", "546", "156"),
    "bloodmnist": _medical("bloodmnist", "blood cells, eight classes", "11 959", "3 421"),
    **{f"{FOLDER}/{name}": _table(name, spec) for name, spec in TABLES.items()},
}
"""By the names that descriptions have for them."""
