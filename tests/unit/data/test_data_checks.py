"""What becomes a client's column, and what is refused by the client's and the field's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rookery import Data, FedAvg, Federation, Minimization
from rookery.errors import DataError


def trained(data: Data, engine: str = "loop") -> torch.Tensor:
    fed = Federation(Minimization(lambda x, b: (x - b.u).square().mean()), data, engine=engine)
    algorithm = FedAvg(0.1, 2, 2)
    return algorithm.round(fed, algorithm.init(fed, torch.ones(2))).x


@pytest.mark.parametrize(("column", "text"), [
    (1.0, "a single number"), (torch.tensor(1.0), "a single number"), (["x", "y"], "array of numbers"),
    (np.array([1, "x"], dtype=object), "array of numbers"), ([[1.0, 2.0], [3.0]], "all of one shape"), ([1.0, None], "missing values"),
    (torch.eye(3).to_sparse(), "sparse_coo"), (torch.tensor([complex(1, float("nan"))]), "non-finite")])
def test_a_column_that_is_no_dense_array_of_numbers_is_refused(column: Any, text: str) -> None:
    with pytest.raises(DataError, match=f"field 'u' of client 'b'.*{text}"):
        Data.from_parts({"a": {"u": torch.ones(2, dtype=column.dtype if isinstance(column, torch.Tensor) else None)}, "b": {"u": column}})
    with pytest.raises(DataError, match=f"field 'u'.*{text}"):
        Data.by_site({"u": column}, [0, 0, 0][: 1 if text == "non-finite" else 3])


class Series:
    """In the manner of pandas': indexed by labels, an array on request."""

    def __init__(self, *values: float) -> None:
        self.values = np.array(values)
        self.values.flags.writeable = False

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, label: int) -> float:
        raise KeyError(label)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.values


@pytest.mark.parametrize(("column", "expected"), [
    (Series(1.0, 2.0), torch.tensor([1.0, 2.0], dtype=torch.float64)),
    (np.arange(2.0)[::-1], torch.tensor([1.0, 0.0], dtype=torch.float64)),
    (np.broadcast_to(np.float32(3.0), (2, 1)), torch.full((2, 1), 3.0)),
    (np.array([7, 65535], dtype=np.uint16), torch.tensor([7, 65535])),
    ([torch.ones(2), torch.zeros(2)], torch.tensor([[1.0, 1.0], [0.0, 0.0]])),
    (torch.arange(4.0).reshape(2, 2).T, torch.tensor([[0.0, 2.0], [1.0, 3.0]]))])
def test_arrays_of_any_kind_become_columns(column: Any, expected: torch.Tensor) -> None:
    for data in (Data.from_parts({"a": {"u": column}}), Data.by_site({"u": column}, [0, 0]), Data({"u": column}, ("a",), np.array([2]))):
        torch.testing.assert_close(data.fields["u"], expected)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_rows_of_a_graph_or_of_inference_mode_are_plain_rows(engine: str) -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    expected = trained(Data.from_parts({"a": {"u": rows}, "b": {"u": rows}}), engine)
    with torch.inference_mode():
        cut = rows + 0
    for same in (rows.clone().requires_grad_(), rows.clone().requires_grad_() * 1, cut):
        for data in (Data.from_parts({"a": {"u": same}, "b": {"u": same}}),
                     Data({"u": torch.cat([same, same])}, ("a", "b"), np.array([3, 3]))):
            assert not data.fields["u"].requires_grad
            assert torch.equal(trained(data, engine), expected)
            assert len(Data.from_parts({"a": {"v": same[:, 0]}}).groups("v").size) == 3


def test_what_the_user_does_with_a_tensor_afterwards_is_not_seen() -> None:
    rows = torch.ones(3)
    made = Data.from_parts({"a": {"u": rows}}), Data.by_site({"u": rows}, [0, 0, 0])
    rows.fill_(7)
    assert all(torch.equal(data.fields["u"], torch.ones(3)) for data in made)


def test_names_are_texts() -> None:
    data = Data.from_parts({0: {"u": torch.ones(2, 2)}, np.int64(1): {"u": torch.zeros(3, 2)}})  # type: ignore[dict-item]
    assert data.names == ("0", "1")
    assert torch.equal(trained(data), trained(Data.from_parts({"0": {"u": torch.ones(2, 2)}, "1": {"u": torch.zeros(3, 2)}})))
    with pytest.raises(DataError, match="'1' stands twice"):
        Data.from_parts({1: {"u": [1.0]}, "1": {"u": [2.0]}})  # type: ignore[dict-item]
    for parts, text in (({None: {"u": [1.0]}}, "got None"), ({"a": {0: [1.0]}}, "got 0"), ({"a": {"leaves": [1.0]}}, "'leaves' is a word")):
        with pytest.raises(DataError, match=text):
            Data.from_parts(parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [[{"u": [1.0]}], {"a": None}, {"a": [1.0, 2.0]}])
def test_parts_are_a_mapping_of_mappings(parts: Any) -> None:
    with pytest.raises(DataError, match="mapping from clients' names"):
        Data.from_parts(parts)


@pytest.mark.parametrize("site", [[1.0, float("nan"), 2.0], np.array(["a", None, "b"], dtype=object)])
def test_a_row_without_a_site_is_refused(site: Any) -> None:
    with pytest.raises(DataError, match="row 1 has none"):
        Data.by_site({"u": [1.0, 2.0, 3.0]}, site)


def test_sizes_are_whole_numbers() -> None:
    assert Data({"u": torch.ones(3)}, ["a", "b"], [1, 2]).offsets.tolist() == [0, 1]  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"number of rows; got \[1.5, 1.5\]"):
        Data({"u": torch.ones(3)}, ("a", "b"), np.array([1.5, 1.5]))
