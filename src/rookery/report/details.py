"""The later sections of the page: what crossed the network, how it was tuned, how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from .blocks import Cell, Rows, amount, name, number, several, table
from .numbers import Method, metrics, stat
from .traffic import drawing, size

FIELDS = ("exchanges", "floats_up", "floats_down", "bytes_up", "bytes_down", "samples")

COUNTED = ("<p>An exchange is one time that sites send values up, to be averaged, added or collected, after reading what came down. "
           "Floats are the numbers in these values, up from all sites and down to them. Samples are rows drawn or looked at, oracle calls "
           "how often the objective's values or derivatives were computed. Set-up is what sites agree on before training, evaluation "
           "the scores of their rows, and calibration.</p>")


def _accounts(method: Method) -> Iterator[tuple[str, list[tuple[dict[str, Any], int]]]]:
    """A method's phases in which anything happened, then a round of training: the accounts of its runs, and what divides them."""
    held = [(record.about["ledger"], record.rounds) for record in method.records if record.about.get("ledger")]
    for phase in metrics(ledger for ledger, _ in held):
        accounts = [(ledger[phase], rounds) for ledger, rounds in held if phase in ledger]
        if any(account[field] for account, _ in accounts for field in FIELDS):
            yield phase, [(account, 1) for account, _ in accounts]
            trained = [(account, rounds) for account, rounds in accounts if rounds]
            if phase == "train" and trained:
                yield "train, a round", trained


def network(found: Sequence[Method]) -> str:
    rows: Rows = []
    for method in found:
        for phase, accounts in _accounts(method):
            means = {field: s.mean for field in FIELDS if (s := stat(account[field] / by for account, by in accounts))}
            calls = {call: s.mean for call in metrics(account["calls"] for account, _ in accounts)
                     if (s := stat(account["calls"].get(call, 0) / by for account, by in accounts))}
            told = ", ".join(f"{call} {amount(mean)}" for call, mean in calls.items())
            cells = [(size if field.startswith("bytes") else amount)(mean) for field, mean in means.items()]
            rows.append([name(method), Cell(escape(phase), "text"), *cells, Cell(escape(told) or "–", "text")])
    drawings = "".join(drawing(method.label, traffic) for method in found if (traffic := method.first("traffic")))
    head = ["method", "phase", "exchanges", "floats up", "floats down", "up", "down", "samples", "oracle calls"]
    seeds = ", mean over seeds" * any(len(method.records) > 1 for method in found)
    content = COUNTED + table(head, rows, f"Summed over sites{seeds}; the headers of messages are not counted.") if rows else ""
    if drawings:
        content += ("<h3>One round, drawn</h3><p>Clients are the sites of a round. Time runs down. The name is that of a client's function "
                    "that reads what comes down or makes what goes up; sizes are per client, and thicker arrows carry more.</p>"
                    f'<div class="rounds">{drawings}</div>')
    return f"<h2>What would have crossed the network</h2>{content}" if content else ""


def _values(values: dict[str, Any]) -> str:
    each = (f"{key} = {value:g}" if isinstance(value, float) else f"{key} = {value}" for key, value in values.items())
    return escape(", ".join(each)) or "–"


def _at_an_end(one: dict[str, Any], key: str) -> bool:
    """Whether the smallest or the largest of more than two numbers was chosen."""
    tried = {value for entry in one["tried"] if isinstance(value := entry["values"].get(key), int | float)}
    return len(tried) > 2 and one["chosen"][key] in (min(tried), max(tried))


def tuning(found: Sequence[Method]) -> str:
    rows: Rows = []
    lists, budgets, held, ends = "", set(), True, list[str]()
    for method in found:
        tunings = [record.about["tuning"] for record in method.records if record.about.get("tuning")]
        for one in {json.dumps(one, sort_keys=True): one for one in tunings}.values():  # seeds mostly share one tuning
            tried, metric = one["tried"], one["metric"]
            budgets.add(len(tried))
            held &= metric.startswith("validation ")
            ends += [f"{method.label}, {key}" for key in one["chosen"] if _at_an_end(one, key)]
            score = next((t["score"] for t in tried if t["values"] == one["chosen"] and t["score"] is not None), None)
            rows.append([name(method), str(len(tried)), Cell(escape(metric), "text"), Cell(_values(one["chosen"]), "text"),
                         "–" if score is None else number(score)])
            body: Rows = [[_values(t["values"]), "no score" if t["score"] is None else number(t["score"])] for t in tried]
            if body:
                lists += f"<details><summary>All that was tried for {escape(method.label)}</summary>"
                lists += table(["values", metric], body, "In the order tried.") + "</details>"
    if not rows:
        return ""
    note = f"Every method had the same budget: {several(min(budgets), 'setting')}." if len(budgets) == 1 else \
        f"The budgets differ: from {min(budgets)} to {max(budgets)} settings."
    head = ["method", "settings tried", "chosen by", "chosen", "its score"]
    how = "Every setting was trained and scored, and the best one kept for the runs of this page."
    how += " Test rows had no say." * held
    how += f" At an end of what was tried, where a wider range might suit better: {'; '.join(ends)}." if ends else ""
    return f"<h2>How it was tuned</h2><p>{escape(how)}</p>" + table(head, rows, note if len(rows) > 1 else "One method was tuned.") + lists


def repeat(found: Sequence[Method]) -> str:
    content = ""
    for method in found:
        # the seeds of a comparison are of one command
        commands = "\n".join(dict.fromkeys(record.about["command"] for record in method.records if record.about.get("command")))
        configs = [record.about["config"] for record in method.records if record.about.get("config")]
        if commands:
            content += f"<h3>{name(method)}</h3><pre>{escape(commands)}</pre>"
        if configs:
            differ = _differences(configs)
            note = f"Configuration of {method.label}" + f", of the first run; others differ in {', '.join(differ)}" * bool(differ)
            content += f"<details><summary>{escape(note)}</summary><pre>{escape(_toml(configs[0]))}</pre></details>"
    told = {" · ".join([*(text for key, value in record.about.get("versions", {}).items() if (text := f"{key} {value}") not in machine),
                        machine]) for method in found for record in method.records for machine in [record.about.get("machine") or ""]}
    content += "".join(f"<p>{escape(line.removesuffix(' · '))}</p>" for line in sorted(told) if line)
    return f"<h2>How to repeat it</h2>{content}" if content else ""


def _toml(config: dict[str, dict[str, Any]]) -> str:
    """
    >>> print(_toml({"run": {"rounds": 3}, "data": {"name": "digits"}}))
    [run]
    rounds = 3
    <BLANKLINE>
    [data]
    name = "digits"
    """
    return "\n\n".join("\n".join([f"[{section}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in part.items())])
                       for section, part in config.items())


def _differences(configs: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    """The entries in which configurations differ: the seed, it is hoped, and nothing else.

    >>> _differences([{"run": {"seed": 0, "rounds": 3}}, {"run": {"seed": 1, "rounds": 3}}])
    ['run.seed']
    """
    keys = dict.fromkeys((section, key) for config in configs for section, part in config.items() for key in part)
    return [f"{section}.{key}" for section, key in keys
            if len({json.dumps(config.get(section, {}).get(key), sort_keys=True) for config in configs}) > 1]
