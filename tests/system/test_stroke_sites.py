"""A fit on the International Stroke Trial over twelve countries, each a process of its own, gives the bundle that a simulation gives."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from running import command
from site_processes import processes

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from rookery.data.readers import ROWS

pytestmark = pytest.mark.slow
COUNTRIES = 12
MAY = """algorithms = ["FedAvg", "LocalSCGDAM", "LocalSGDAM"]
objectives = ["auc", "balanced_cross_entropy", "cross_entropy", "last_layer"]
min_batch = 10
salt = "none"
"""


def write(folder: Path) -> list[str]:
    """A table for each of the countries with the most patients, one of all, and a schema without hospitals; the countries' names."""
    rows = ROWS["sites/stroke"]()
    frame = rows.sheet.frame
    names = [str(name) for name in frame["COUNTRY"].value_counts().index[:COUNTRIES]]
    kept = [*(name for name in rows.schema.inputs if name != "COUNTRY"), rows.schema.label]
    columns = {name: rows.schema.columns[name] for name in rows.schema.inputs if name != "COUNTRY"}
    schema = replace(rows.schema, columns=columns, site=None, keep=())
    (folder / "schema.toml").write_text(schema.to_toml())
    country = frame["COUNTRY"].astype(str)
    frame[country.isin(names)][[*kept, "COUNTRY"]].to_csv(folder / "all.csv", index=False)
    for name in names:
        frame[country == name][kept].to_csv(folder / f"{name}.csv", index=False)
    return names


def test_twelve_countries_come_to_the_bundle_of_a_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "ROOKERY_TEST_DATA" not in os.environ:
        pytest.skip("the table of the trial is in no data folder: name one in ROOKERY_TEST_DATA")
    monkeypatch.setenv("ROOKERY_DATA", os.environ["ROOKERY_TEST_DATA"])
    names = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("fit.toml").write_text('[data]\nschema = "schema.toml"\ntest_at = "sites"\n[model]\nhidden = [16]\n[federation]\nmin_batch = 10\n')
    words = ["fit", "fit.toml", "--goal", "auc", "--rounds", "5", "--jobs", "1", "--quiet"]
    with processes(tmp_path, names, "", MAY, rows='table = "{name}.csv"') as sites:
        addresses = "\n".join(f'"{name}" = "{address}"' for name, address in sites.addresses.items())
        Path("federation.toml").write_text(f'[server]\ncertificates = "certificates"\n[sites]\n{addresses}\n')
        assert command(monkeypatch, *words, "--sites", "federation.toml", "--out", "real") == 0
    assert command(monkeypatch, *words, "--no-pool", "--out", "simulated", "--set", 'data.table="all.csv"', "--set",
                   'data.site="COUNTRY"', "--set", 'federation.engine="wire"') == 0
    for file in ("model.safetensors", "encoder.json"):
        assert Path("real/bundle", file).read_bytes() == Path("simulated/bundle", file).read_bytes()
    one, other = (json.loads(Path(folder, "bundle/bundle.json").read_text()) for folder in ("real", "simulated"))
    assert one["threshold"] == pytest.approx(other["threshold"], rel=1e-5)
    assert one["found"]["AUC"] == pytest.approx(other["found"]["AUC"], abs=1e-6)
    fits = [json.loads(Path(folder, "fit.json").read_text()) for folder in ("real", "simulated")]
    assert fits[0]["kept"] == fits[1]["kept"]
