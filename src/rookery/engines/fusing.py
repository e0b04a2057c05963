"""Fewer passes over memory in a traced graph: a large model costs by the bytes its vectors move, not by the operation.

A gradient of K clients comes as one product for each layer, is concatenated to K × d numbers, multiplied by the step size and subtracted:
seven passes over these numbers. `fuse` lets large products write into their place in the vector, multiplies while it adds, and overwrites
what nobody reads any more: intermediate results, and the vectors that a repeated step hands on to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
LARGE = 16_384  # numbers: below it a call costs more than the memory that it spares
IN_PLACE = {aten.add.Tensor: aten.add_.Tensor, aten.sub.Tensor: aten.sub_.Tensor, aten.mul.Tensor: aten.mul_.Tensor,
            aten.addcmul.default: aten.addcmul_.default}
INTO = {aten.add.Tensor: aten.add.out, aten.sub.Tensor: aten.sub.out, aten.mul.Tensor: aten.mul.out, aten.addcmul.default: aten.addcmul.out}


def fuse(module: GraphModule, owned: Sequence[int] = ()) -> None:
    """Rewrite the graph. The inputs at these places may be overwritten: their new values are its first results, in this order."""
    graph = module.graph
    if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in graph.nodes):
        return  # a function that changes something in place itself is left as it is
    for node in list(graph.nodes):
        _join_once(graph, node)
        _multiply_while_adding(graph, node)
    own = _overwritable(graph, owned)
    places = set(own.values())
    for node in list(graph.nodes):
        if node.target is aten.cat.default:
            _products_into_place(graph, node, own, places)
    for node in list(graph.nodes):
        _overwrite(graph, node, own, places)
    module.recompile()


def _join_once(graph: Graph, node: Node) -> None:
    """A concatenation that is only a part of another one stands in it part for part: the derivative of a split of a split."""
    if node.target is not aten.cat.default:
        return
    given: Any = node.args[0]
    inner = [part for part in given if part.target is aten.cat.default and part.args[1:] == node.args[1:] and len(part.users) == 1]
    if inner:
        node.args = ([one for part in given for one in (part.args[0] if part in inner else [part])], *node.args[1:])
        for part in dict.fromkeys(inner):
            graph.erase_node(part)


def _meta(node: Any) -> Any:
    """Shape, stride and dtype of a value that is one tensor."""
    meta = node.meta.get("tensor_meta") if isinstance(node, Node) else None
    return meta if hasattr(meta, "shape") else None


def _large(node: Any) -> bool:
    meta = _meta(node)
    return meta is not None and meta.dtype.is_floating_point and meta.shape.numel() >= LARGE


def _alike(one: Any, other: Any) -> bool:
    a, b = _meta(one), _meta(other)
    return a is not None and b is not None and a.shape == b.shape and a.dtype == b.dtype


def _aliases(node: Node) -> bool:
    """Whether a value is, or may be, memory of another one."""
    if node.op != "call_function" or node.target is aten._unsafe_view.default or not isinstance(node.target, OpOverload):
        return True
    return any(value.alias_info is not None for value in node.target._schema.returns)


def _memory_of(node: Node) -> set[Node]:
    """The value, and all whose memory it may be."""
    found, ahead = set(), [node]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += node.all_input_nodes if _aliases(node) else []
    return found


def _reads(values: Iterable[Any], places: set[Node]) -> bool:
    """Whether one of these values may be memory of an input that is overwritten at the end."""
    return any(isinstance(value, Node) and not places.isdisjoint(_memory_of(value)) for value in values)


def _call(graph: Graph, target: Any, *arguments: Any, like: Node | None = None, **options: Any) -> Node:
    node = graph.call_function(target, arguments, options)
    if like is not None:
        node.meta["tensor_meta"] = _meta(like)
    return node


def _multiply_while_adding(graph: Graph, node: Node) -> None:
    """a ± s·b in one pass, where s is a number, or one for each client."""
    if node.target not in (aten.add.Tensor, aten.sub.Tensor) or node.kwargs or not _large(node):
        return
    a, product = node.args
    if node.target is aten.add.Tensor and not _scaled(product):
        a, product = product, a
    if not _scaled(product) or not _alike(a, node):
        return
    assert isinstance(product, Node)
    b: Any
    s: Any
    b, s = product.args if _alike(product.args[0], node) else product.args[::-1]
    if not _alike(b, node):
        return
    with graph.inserting_before(node):
        if isinstance(s, int | float):
            new = _call(graph, node.target, a, b, alpha=s, like=node)
        else:
            if _meta(s).dtype != _meta(node).dtype:  # a number of the server's, which is a double
                s = _call(graph, aten._to_copy.default, s, dtype=_meta(node).dtype, like=s)
            new = _call(graph, aten.addcmul.default, a, b, s, value=1 if node.target is aten.add.Tensor else -1, like=node)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    graph.erase_node(product)


def _scaled(node: Any) -> bool:
    """Whether a value is a large one times a number, or one number for each client, and used only once."""
    if not isinstance(node, Node) or node.target is not aten.mul.Tensor or len(node.users) > 1 or not _large(node):
        return False
    for s in node.args:
        if isinstance(s, int | float):
            return True
        meta = _meta(s)
        if meta is not None and meta.dtype.is_floating_point and (not meta.shape or (
                meta.dtype == _meta(node).dtype and meta.shape.numel() == meta.shape[0] == _meta(node).shape[0])):
            return True
    return False


def _overwritable(graph: Graph, owned: Sequence[int]) -> dict[Node, Node]:
    """Inputs that may be overwritten, by the result that takes the place of each; an input that is seen in a result is not among them."""
    given = [node for node in graph.nodes if node.op == "placeholder"]
    (results,) = graph.output_node().args
    results = list(results) if isinstance(results, tuple | list) else [results]
    seen = set().union(*(_memory_of(node) for node in results if isinstance(node, Node)))
    return {result: given[k] for k, result in zip(owned, results, strict=False) if isinstance(result, Node)
            and given[k] not in seen and _alike(given[k], result) and results.count(result) == len(result.users) == 1}


def _products_into_place(graph: Graph, cat: Node, own: dict[Node, Node], places: set[Node]) -> None:
    """Let the large products among the parts of K flat vectors write into these vectors, or into those they are added to."""
    parts: Any = cat.args[0]
    if not _large(cat) or len(_meta(cat).shape) != 2 or cat.args[1:] not in ((1,), (-1,)) or not all(_meta(p) for p in parts):
        return
    products = [_product(part) for part in parts]
    if 2 * sum(_meta(part).shape.numel() for part, found in zip(parts, products, strict=True) if found) < _meta(cat).shape.numel():
        return
    update = next(iter(cat.users)) if len(cat.users) == 1 else None
    # what is done at the end must not read what another operation at the end has overwritten
    factors = [value for part, found in zip(parts, products, strict=True) for value in ([part] if found is None else found.args)]
    if update is not None and update in own and update.target is aten.addcmul.default and update.args[:2] == (own[update], cat) \
            and not _reads([*factors, update.args[2]], places):
        _update_in_place(graph, cat, update, own.pop(update), parts, products)
        return
    with graph.inserting_before(cat):
        whole = _call(graph, aten.new_empty.default, factors[0], list(_meta(cat).shape), dtype=_meta(cat).dtype, like=cat)
        for (first, last), part, found in zip(_places(parts), parts, products, strict=True):
            place = _call(graph, aten.slice.Tensor, whole, 1, first, last)
            if found is None:
                _call(graph, aten.copy_.default, place, part)
            else:
                _call(graph, aten.baddbmm_.default, _call(graph, aten.view.default, place, list(_meta(found).shape)), *found.args, beta=0)
    whole.meta["written"] = len(parts)  # these of its users only fill it
    cat.replace_all_uses_with(whole)
    _erase(graph, cat)


def _update_in_place(graph: Graph, cat: Node, update: Node, x: Node, parts: Any, products: list[Node | None]) -> None:
    """x ← x ± s·cat(parts), part for part: A·B is added to x by the product itself, with s in the smaller of A and B."""
    s: Any = update.args[2]
    sign, clients = update.kwargs["value"], _meta(cat).shape[0]
    with graph.inserting_before(graph.output_node()):  # nothing reads x any more
        column = s if not _meta(s).shape else _call(graph, aten.view.default, s, [clients, 1, 1])
        for (first, last), part, found in zip(_places(parts), parts, products, strict=True):
            place = _call(graph, aten.slice.Tensor, x, 1, first, last)
            if found is None:
                _call(graph, aten.addcmul_.default, place, part, s, value=sign)
                continue
            A, B = found.args
            if _meta(A).shape.numel() <= _meta(B).shape.numel():
                A = _call(graph, aten.mul.Tensor, A, column)
            else:
                B = _call(graph, aten.mul.Tensor, B, column)
            _call(graph, aten.baddbmm_.default, _call(graph, aten.view.default, place, list(_meta(found).shape)), A, B, alpha=sign)
    update.replace_all_uses_with(x)
    graph.erase_node(update)
    _erase(graph, cat)


def _places(parts: Any) -> list[tuple[int, int]]:
    return list(pairwise(accumulate((_meta(part).shape[1] for part in parts), initial=0)))


def _product(part: Node) -> Node | None:
    """The batched product that a part is the flat view of, if it is large for each client and used for nothing else."""
    found: Any = part.args[0] if part.target is aten.view.default else part
    if not isinstance(found, Node) or found.target is not aten.bmm.default or len(found.users) > 1 or len(part.users) > 1:
        return None
    return found if _meta(found).shape[1:].numel() >= LARGE else None


def _overwrite(graph: Graph, node: Node, own: dict[Node, Node], places: set[Node]) -> None:
    """The operation in place: on an input that is handed on, or on an intermediate result that nothing else reads."""
    if node.target not in IN_PLACE or not _large(node):
        return
    first, second = node.args[:2]
    handed = own.get(node) is first and not _reads(node.args[1:], places)
    if handed or _spare(first, node):
        with graph.inserting_before(graph.output_node() if handed else node):
            new = _call(graph, IN_PLACE[node.target], *node.args, like=node, **node.kwargs)
    elif _spare(second, node):
        with graph.inserting_before(node):
            new = _call(graph, INTO[node.target], *node.args, out=second, like=node, **node.kwargs)
    else:
        return
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _spare(value: Any, node: Node) -> bool:
    """Whether a value is an intermediate result of the same form that nothing but this operation reads, each number in its own place."""
    if not _alike(value, node) or len(value.users) > 1 + value.meta.get("written", 0) or node.args.count(value) > 1:
        return False
    fresh = value.target in (*IN_PLACE.values(), *INTO.values()) or not _aliases(value)
    return fresh and all(size == 1 or step != 0 for size, step in zip(_meta(value).shape, _meta(value).stride, strict=True))


def _erase(graph: Graph, node: Node) -> None:
    """Take out a value that nobody reads, and what was only there for it."""
    inputs = node.all_input_nodes
    graph.erase_node(node)
    for before in inputs:
        if before.op == "call_function" and not before.users:
            _erase(graph, before)
