"""Functions as owners of rows write them, and as they mean to."""

from __future__ import annotations

from typing import Any

from hosts import made

number = 3


def rows() -> Any:
    return made({})


def listening(asked: dict[str, Any]) -> Any:
    return made(asked)


def other() -> Any:
    return 3


def three() -> Any:
    return (*made({}), 3)


def fails() -> Any:
    raise ValueError("Mrs Smith")


def two(one: Any, other: Any) -> Any:
    return made({})
