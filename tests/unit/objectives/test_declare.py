"""What objectives say about themselves: entries from their signature, starting points, columns that a run makes."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rookery.objectives as package
from rookery import Batch, Bilevel, Data, Federation, Minimax, Minimization, Model, Problem
from rookery.errors import ConfigError, ProblemError
from rookery.objectives import Given, Objective, Start, declared, objective, objectives
from rookery.objectives.declare import with_site, written
from rookery.objectives.trainval import mark

LABELS = {"north": [0] * 12 + [1] * 4 + [2] * 4, "south": [0, 1], "east": [2] * 30}
DATA = Data.from_parts({name: {"inputs": torch.randn(len(y), 4, generator=torch.Generator().manual_seed(len(y))), "labels": torch.tensor(y)}
                        for name, y in LABELS.items()})


def given(o: Objective, net: nn.Module | None = None, classes: int = 3, **entries: Any) -> Given:
    model = Model(net or nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, classes)))
    values = o.complete(entries)
    return Given(model, model.vector(), o.rows(DATA, values, 0), classes, values)


def test_every_objective_of_the_package_is_declared_or_made_of_streams() -> None:
    functions = [getattr(package, name) for name in package.__all__]
    made = {f.__name__ for f in functions if inspect.isfunction(f) and isinstance(_returns(f), type) and issubclass(_returns(f), Problem)}
    # its clients have no rows, so no table can be spread over them; `with_weight_decay` changes a problem
    assert made - set(objectives()) == {"invariant_logistic", "with_weight_decay"}
    for o in objectives().values():
        assert o.text
        assert o.kinds
        assert getattr(package, o.name) is o.function


def _returns(function: Any) -> Any:
    from typing import get_args, get_type_hints
    found = get_type_hints(function).get("return")
    return (get_args(found) or (found,))[0]


@pytest.mark.parametrize("name", sorted(objectives()))
def test_the_starting_points_fit_the_problem(name: str) -> None:
    o = objectives()[name]
    classes = 2 if o.two_classes else 3
    net = o.net((4,)) if o.net is not None else None
    own = given(o, net, classes, **{n: v for n, v in {"field": "labels", "form": "cvar", "size": 0.5,
                                                         "kind": "demographic parity"}.items() if n in o.entries})
    if name == "chi2_dro":
        own = given(o, form="dual")
    data = Data(own.data.fields | {"labels": own.data.fields["labels"].clamp(max=classes - 1)}, own.data.names, own.data.sizes)
    fed = Federation(o.problem(Given(own.model, own.vector, data, classes, own.entries)), data, engine="loop")
    x = o.x.make(own)
    fed.prepare(x)
    y = None if o.y is None else o.y.make(own)
    assert isinstance(fed.problem, o.kinds)
    assert (y is not None) == isinstance(fed.problem, Minimax | Bilevel)
    assert torch.equal(o.trained_parameters(x, y, own.model.size), own.vector)
    rows = data.views(0)
    task = Batch({name: column[None] for name, column in rows.items()})  # where outer samples are tasks, all rows are one
    batch = Batch(task.fields, None, task) if name == "maml" else fed.problem.sampling.whole(rows)
    arguments = (x, batch) if y is None else (x, y, batch)
    value = fed.problem.oracle({Minimax: "f_x", Bilevel: "g_y"}.get(type(fed.problem), fed.problem.ORACLES[0]))(*arguments)
    assert torch.isfinite(value).all()


def test_marked_rows_are_a_share_of_every_class_and_depend_on_the_clients_name_alone() -> None:
    marked = mark(DATA, {"validation_share": 0.25}, 0)
    for seed in range(5):
        marked = mark(DATA, {"validation_share": 0.25}, seed)
        north, south, east = torch.split(marked, DATA.sizes.tolist())
        assert [int(north[:12].sum()), int(north[12:16].sum()), int(north[16:].sum())] == [3, 1, 1]
        assert int(south.sum()) == 1
        assert int(east.sum()) in (7, 8)
        assert torch.equal(mark(DATA.part(2), {"validation_share": 0.25}, seed), east)
    assert not torch.equal(marked, mark(DATA, {"validation_share": 0.25}, 9))
    tiny = mark(DATA, {"validation_share": 0.99}, 0)
    assert all(0 < int(one.sum()) < len(one) for one in torch.split(tiny, DATA.sizes.tolist()))
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            mark(DATA, {"validation_share": share}, 0)


def test_a_column_of_the_rows_own_is_taken_as_it_is() -> None:
    o, column = objectives()["loss_tuning"], torch.arange(52) % 2
    data = Data(DATA.fields | {"validation": column}, DATA.names, DATA.sizes)
    assert torch.equal(o.rows(data, o.complete({}), 0).fields["validation"], column)
    assert repr(o.problem(given(o), batch=8).sampling) == "TrainValSampler(label='validation', positives=2)"
    whole = Given(given(o).model, given(o).vector, data, 3, o.complete({}))
    assert repr(o.problem(whole, batch=8).sampling) == "TrainValSampler(label='validation', positives=4)"


def test_a_column_of_sites_numbers_the_clients_as_they_are_trained() -> None:
    o = objectives()["data_reweighting"]
    own = given(o, field="site")
    assert own.count("site") == 3
    assert own.data.fields["site"].tolist() == np.repeat([0, 1, 2], DATA.sizes).tolist()
    assert with_site(DATA.part(2), DATA.names).fields["site"].unique().tolist() == [2]
    assert len(o.x.make(own)) == 3


def test_entries_come_from_the_signature() -> None:
    def mine(model: Model, a: float, b: int | None = None, c: Literal["u", "v"] = "u", d: Tensor | None = None, e=0.5,  # type: ignore[no-untyped-def]
             f: nn.Module | None = None, groups: int = 2, width: int = 3, **options: Any) -> Minimization:
        return Minimization(lambda x, batch: x.sum(), model=model, **options)

    entries = declared(mine).entries
    assert list(entries) == ["a", "b", "c", "d", "e", "groups", "width"]
    assert entries["a"].default is inspect.Parameter.empty
    assert entries["d"].vector
    assert not entries["a"].vector
    assert entries["e"].hint is float
    assert declared(mine) is declared(mine)
    assert declared(mine).name.endswith("mine")
    with pytest.raises(ProblemError, match="the parameter 'b' is neither what a run gives"):
        written(lambda a, b: a, {"a"})


def test_a_list_of_numbers_is_handed_on_as_a_vector() -> None:
    o = objectives()["cross_entropy"]
    plain, weighted = (o.problem(given(o, nn.Linear(4, 3), **entries)) for entries in ({}, {"weight": (2.0, 2.0, 2.0)}))
    assert isinstance(plain, Minimization)
    assert isinstance(weighted, Minimization)
    batch = plain.sampling.whole(DATA.views(0))
    torch.testing.assert_close(weighted.f(torch.ones(15), batch), 2 * plain.f(torch.ones(15), batch))


def test_a_decorated_function_stays_what_it_is() -> None:
    def plain(losses: Any, power: float = 2.0) -> Minimization:
        return Minimization(lambda x, b: losses(x, b).pow(power).mean())

    kept = objective(metric="accuracy", x=Start("0", lambda own: own.vector * 0))(plain)
    assert kept is plain
    assert declared(plain).metric == "accuracy"
    assert plain.__name__ not in objectives()
    assert float(declared(plain).x.make(given(declared(plain))).abs().sum()) == 0


@pytest.mark.parametrize(("net", "words"), [
    (nn.Linear(4, 3), "must be an nn.Sequential that ends in nn.Linear"), (nn.Sequential(nn.Linear(4, 3)), "this net has one layer"),
    (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), "ends in nn.Linear"),
    (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3, bias=False)), "with a bias")])
def test_a_net_without_a_head_to_cut_off_is_refused(net: nn.Module, words: str) -> None:
    o = objectives()["hyper_representation"]
    with pytest.raises(ConfigError, match=words):
        o.problem(given(o, net))
