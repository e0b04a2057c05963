"""What a description names as `module:name`, of the user's own: found beside the description's file, else on Python's path."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..errors import ConfigError, Refused, RookeryError
from .values import nearest

T = TypeVar("T")


def is_own(name: str) -> bool:
    """Whether a name is a `module:name`.

    >>> is_own("mine:Net"), is_own("FedAvg")
    (True, False)
    """
    return ":" in name


def find(name: str, where: str, folder: Path | None = None) -> Any:
    """What `module:name` stands for; `where` is the entry that says it, `folder` where the description lies."""
    module_name, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise ConfigError(f"{where} is {name!r}; something of one's own reads module:name, as in \"mymodule:MyName\" for MyName in "
                          "mymodule.py beside the description")
    module = _module(module_name, where, folder)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            have = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            raise ConfigError(f"{where} is {name!r}, but {_place(module)} has no {part!r}; {nearest(part, have)}"
                              f"It has {', '.join(have) or 'nothing'}")
        found = getattr(found, part)
    return found


def find_allowed(name: str, where: str, allowed: Collection[str], folder: Path | None = None) -> Any:
    """What somebody else's `module:name` stands for: a class or function that an allowed module has of its own.

    Not what is reached through it, as `module:torch.load`, nor what it has imported, as `module:load`.
    """
    module, _, path = name.partition(":")
    if module not in allowed:
        raise Refused(f"{where} names {name!r}, and the module {module!r} is not among those that a run may name here (site.modules)")
    found = getattr(_module(module, where, folder), path, None) if path.isidentifier() else None
    if getattr(found, "__module__", None) != module or getattr(found, "__qualname__", None) != path:
        raise Refused(f"{where} names {name!r}, which is no class or function that {module!r} has of its own")
    return found


def files(name: str) -> list[Path]:
    """The file that a name of one's own comes from, once it has been found."""
    module = sys.modules.get(name.partition(":")[0])
    path = getattr(module, "__file__", None)
    return [] if path is None else [Path(path)]


def call(function: Callable[..., T], where: str, *arguments: Any, **named: Any) -> T:
    """The result of a function of the user's; its error with the file and line where it came up."""
    try:
        return function(*arguments, **named)
    except RookeryError:
        raise
    except Exception as error:
        raise ConfigError(f"{where}: {blame(error)}") from error


def blame(error: BaseException) -> str:
    """An error of the user's code in one line: what it says, and the last file and line of theirs that it went through."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    ours = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((ours, "<frozen ", sys.base_prefix, sys.prefix))] or frames
    place = f"{theirs[-1].filename}, line {theirs[-1].lineno}: " if theirs else ""
    return f"{place}{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def _module(name: str, where: str, folder: Path | None) -> ModuleType:
    top = name.partition(".")[0]
    beside = folder is not None and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())
    if folder is not None and beside and str(folder.resolve()) not in sys.path:
        # for good: the module may import its neighbours later, and processes of a comparison inherit the path
        sys.path.insert(0, str(folder.resolve()))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            looked = f"in {folder.resolve()} and " if folder is not None else ""
            raise ConfigError(f"{where} needs the module {error.name!r}, which is not there; looked {looked}on Python's path: put "
                              f"{error.name.replace('.', '/')}.py beside the description, or install it") from None
        raise ConfigError(f"{where}: the module {name!r} cannot be imported. {blame(error)}") from error
    if folder is not None and beside and not _inside(module, folder):
        raise ConfigError(f"{where}: {folder / top} is not what Python knows as {name!r}, which is {_place(module)}: rename yours")
    return module


def _inside(module: ModuleType, folder: Path) -> bool:
    paths = [p for p in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if p]
    return any(Path(p).resolve().is_relative_to(folder.resolve()) for p in paths)


def _place(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or f"Python's own module {module.__name__!r}")
