"""All extras in one environment, as `make slow` installs them: none asks for what another forbids, and one process has all engines."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version

import pytest
from packaging.requirements import Requirement


def lacking() -> list[str]:
    """What the extras ask for and is not there, or is there in a version that they do not allow."""
    found = []
    for need in map(Requirement, requires("rookery") or ()):
        try:
            if not need.specifier.contains(version(need.name), prereleases=True):
                found.append(f"{need.name} {version(need.name)}, and not {need.specifier}")
        except PackageNotFoundError:
            found.append(need.name)
    return found


def test_every_extra_of_the_package_has_its_requirements() -> None:
    extras = set(metadata("rookery").get_all("Provides-Extra") or ())
    asked = {name for need in requires("rookery") or () for name in re.findall(r"extra == ['\"]([^'\"]+)", need)}
    assert extras == asked
    assert {"cli", "grpc", "flare", "ray", "tracking", "export"} <= extras


@pytest.mark.slow
@pytest.mark.skipif(bool(set(lacking()) & {"nvflare", "ray"}), reason="not all extras are installed: make slow")
def test_the_extras_stand_beside_each_other() -> None:
    assert lacking() == []
    checked = subprocess.run([sys.executable, "-m", "pip", "check", "--disable-pip-version-check"], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "No broken requirements found.\n")
    program = "from rookery.engines import Grpc, Ray, flare\nimport rookery.cli.commands, rookery.sites.service\n" \
              "import grpc, nvflare.collab, ray, onnx, tensorboard, mlflow\nprint(Grpc.__name__, Ray.__name__, flare.submit.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Grpc Ray submit\n"), done.stderr
