"""Mistakes and oddities that people bring to `rookery look | run | predict | export`.

CASES is a list of dicts:
  name, about, files {relative name: str (write as UTF-8, newline="") or bytes}, commands (argv after `rookery`), expect {exit, says, not}.
`says` and `not` are regexes for re.search(…, re.IGNORECASE) on stdout + stderr of the LAST command; earlier commands are meant to succeed,
except where "earlier" says otherwise.

A few cases have one more key, because a person edits a file between two commands and no command can do that:
  edits: [{"after": 1, "file": "data.schema.toml", "find": regex, "replace": text}]: apply once after that many commands have run,
         apply_edits(case, folder, done) does it, and raises LookupError if there was nothing to edit.
  schema_format: True: the case rests on a guess about how the schema file looks; read it before you call a failure a failure.
  assumes: what else the case takes for granted that the brief did not say.
Line numbers are the file's own: the header of a plain table is line 1.

One file, because it is a list, written by somebody who had not read the code.
"""

import csv
import gzip
import io
import math
import random
import re
import unicodedata
import zipfile
from datetime import date, timedelta
from pathlib import Path

COLUMNS = ["patient", "hospital", "age", "sex", "bp", "admitted", "outcome"]


# ---------------------------------------------------------------------------------------------------------------------- tables


def rows(n=120, sites=("north", "south", "west"), seed=0):
    """A clean table: a patient a row, sites in turn, an outcome that age and bp explain in part."""
    r = random.Random(seed)
    ids = r.sample(range(10000, 99999), n)
    table = []
    for i in range(n):
        age, bp = r.randint(20, 90), round(r.gauss(130, 15))
        risk = 1 / (1 + math.exp(-(0.05 * (age - 68) + 0.03 * (bp - 130))))
        table.append(
            {
                "patient": f"P{ids[i]}",
                "hospital": sites[i % len(sites)],
                "age": age,
                "sex": r.choice("FM"),
                "bp": bp,
                "admitted": (date(2023, 1, 1) + timedelta(r.randint(0, 364))).isoformat(),
                "outcome": "died" if r.random() < risk else "survived",
            }
        )
    return table


def add(table, name, value, before="outcome"):
    """A column more: value(i, row)."""
    out = []
    for i, row in enumerate(table):
        new = {}
        for key, cell in row.items():
            if key == before:
                new[name] = value(i, row)
            new[key] = cell
        if before not in row:
            new[name] = value(i, row)
        out.append(new)
    return out


def change(table, name, value):
    return [{**row, name: value(i, row)} for i, row in enumerate(table)]


def put(table, line, **cells):
    """Other cells in one line of the file (header is line 1)."""
    out = [dict(row) for row in table]
    out[line - 2].update(cells)
    return out


def without(table, *names):
    return [{k: v for k, v in row.items() if k not in names} for row in table]


def rename(table, **names):
    return [{names.get(k, k): v for k, v in row.items()} for row in table]


def text(table, sep=",", header=True, end="\n", columns=None):
    columns = list(table[0]) if columns is None else columns
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator=end)
    if header:
        writer.writerow(columns)
    writer.writerows([row[c] for c in columns] for row in table)
    return out.getvalue()


def new_rows(n=30, seed=1):
    return without(rows(n, seed=seed), "outcome")


def visits(n=120, seed=0):
    """Two rows a patient, both at the same site."""
    table = rows(n, seed=seed)
    for i in range(0, n, 6):
        for k in range(3):
            table[i + 3 + k]["patient"] = table[i + k]["patient"]
    return table


def workbook(table):
    """A real, minimal Excel workbook."""

    def sheet():
        yield '<?xml version="1.0" encoding="UTF-8"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
        for cells in [list(table[0]), *([*row.values()] for row in table)]:
            yield "<row>" + "".join(f'<c t="inlineStr"><is><t>{c}</t></is></c>' for c in cells) + "</row>"
        yield "</sheetData></worksheet>"

    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    pkg = "http://schemas.openxmlformats.org/package/2006/"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml."
    parts = {
        "[Content_Types].xml": f'<?xml version="1.0"?><Types xmlns="{pkg}content-types"><Default Extension="rels" ContentType="application/'
        f'vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="{kind}'
        f'sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}worksheet+xml"/></Types>',
        "_rels/.rels": f'<?xml version="1.0"?><Relationships xmlns="{pkg}relationships"><Relationship Id="rId1" Type="{rel}/'
        'officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<?xml version="1.0"?><workbook xmlns="{main}" xmlns:r="{rel}"><sheets><sheet name="Sheet1" sheetId="1" '
        'r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<?xml version="1.0"?><Relationships xmlns="{pkg}relationships"><Relationship Id="rId1" Type="{rel}/'
        'worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": "".join(sheet()),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


# ---------------------------------------------------------------------------------------------------------- commands, descriptions


LOOK = ["look", "data.csv", "--label", "outcome", "--site", "hospital"]
RUN = ["run", "run.toml", "--out", "runs/a"]
BUNDLE = "runs/a/bundle"
PREDICT = ["predict", BUNDLE, "new.csv", "-o", "out.csv"]


def toml(
    table='"data.csv"',
    label='"outcome"',
    site='"hospital"',
    data="",
    more="",
    model="",
    algorithm="",
    name='"FedAvg"',
    hidden="[8]",
    rounds="2",
    positive='["died"]',
    lr="0.1",
):
    """run.toml; None leaves a key out; data, model, algorithm: lines more in that section; more: sections more."""
    keys = {"table": table, "label": label, "site": site, "positive": positive}
    return (
        "[data]\n"
        + "".join(f"{k} = {v}\n" for k, v in keys.items() if v is not None)
        + data
        + f'\n[model]\nname = "mlp"\nhidden = {hidden}\n{model}\n[algorithm]\nname = {name}\nlr = {lr}\nbatch = 16\nlocal_steps = 2\n'
        + f"{algorithm}\n[run]\nrounds = {rounds}\n{more}"
    )


# ------------------------------------------------------------------------------------------------------------------------ regexes


NEVER = [
    r"Traceback \(most recent",
    r"\b(Key|Value|Type|Index|Attribute|Runtime|Unicode\w*|Assertion|NotImplemented|IsADirectory|Overflow|"
    r"TOMLDecode|Parser|Validation)Error\b",
    r"_csv\.Error|BadZipFile|ArrowInvalid",
]
LEFT = r"(left out|leav|drop|ignor|not used|unused|exclud|skip|not an input|no input|without it)"
MISSING = r"(missing|empty|blank|no value|not filled|without)"


def near(a, b, n=200):
    return rf"(?:{a})[\s\S]{{0,{n}}}?(?:{b})|(?:{b})[\s\S]{{0,{n}}}?(?:{a})"


def w(word):
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def line(n):
    """The file's own line number: "line 19", "lines 7 and 19", "data.csv:19"."""
    return rf"\blines?\b[\s\S]{{0,60}}?(?<![\w.]){n}(?!\w)|:{n}(?!\d)"


def kind(column, *kinds):
    return near(w(column), r"\b(?:" + "|".join(kinds) + r")", 120)


def not_kind(column, *kinds):
    return rf"{w(column)}[\"'`]?[ \t:|│,(=]{{1,40}}(?:is )?(?:an? )?(?:{'|'.join(kinds)})\b"


CASES = []


def case(name, about, files, commands, exit, says, never=(), **more):
    CASES.append(
        {
            "name": name,
            "about": about,
            "files": files,
            "commands": commands,
            "expect": {"exit": exit, "says": list(says), "not": [*NEVER, *never]},
            **more,
        }
    )


def look(name, about, content, exit, says, never=(), argv=None, **more):
    case(name, about, {"data.csv": content}, [argv or LOOK], exit, says, never, **more)


def described(name, about, description, exit, says, never=(), content=None, argv=None, files=None, **more):
    case(
        name,
        about,
        {"data.csv": text(rows()) if content is None else content, "run.toml": description, **(files or {})},
        [argv or RUN],
        exit,
        says,
        never,
        **more,
    )


def predicted(name, about, new, exit, says, never=(), argv=None, content=None, files=None, **more):
    case(
        name,
        about,
        {"data.csv": text(rows()) if content is None else content, "run.toml": toml(), "new.csv": new, **(files or {})},
        [RUN, argv or PREDICT],
        exit,
        says,
        never,
        **more,
    )


def apply_edits(case, folder, done):
    """The edits that a person makes after `done` commands have run."""
    for edit in case.get("edits", ()):
        if edit["after"] == done:
            path = Path(folder) / edit["file"]
            content, count = re.subn(edit["find"], edit["replace"], path.read_text(encoding="utf-8"), count=1)
            if not count:
                raise LookupError(f"{case['name']}: {edit['file']} has no {edit['find']}")
            path.write_text(content, encoding="utf-8")


# ============================================================================================================ controls: no mistake

look(
    "control-clean-look",
    "Nothing is wrong; a program that cries wolf here would not be believed elsewhere.",
    text(rows()),
    "zero",
    [
        kind("age", "number"),
        kind("sex", "categor"),
        kind("admitted", "date"),
        kind("patient", "id"),
        w("north"),
        w("south"),
        w("west"),
        near("positive", w("died")),
    ],
    [r"\b(likely|possible) leaks?\b[^\n]{0,40}\b(age|bp|sex)\b"],
)

case(
    "control-look-run-predict",
    "The whole way without a mistake; predict needs no label.",
    {"data.csv": text(rows()), "run.toml": toml(data='schema = "data.schema.toml"\n'), "new.csv": text(new_rows())},
    [[*LOOK, "--positive", "died", "--out", "data.schema.toml"], RUN, PREDICT],
    "zero",
    [r"\b30\b|out\.csv"],
)

# ================================================================================================== numbers that are not written so

look(
    "one-unknown-in-number",
    "One 'unknown' in bp would silently turn the whole column into a category with a hundred levels.",
    text(put(rows(), 47, bp="unknown")),
    "zero",
    [near(w("bp"), "unknown"), line(47), kind("bp", "number")],
    [not_kind("bp", "categor\\w+", "text")],
)

look(
    "four-spellings-of-missing",
    "NA, n/a, ? and - all mean missing; read as text they make bp a category.",
    text(put(put(put(put(rows(), 11, bp="NA"), 22, bp="n/a"), 33, bp="?"), 44, bp="-")),
    "zero",
    [near(w("bp"), MISSING), r"(?<![\d.])4(?![\d.])|3\.3|" + line(33)],
    [not_kind("bp", "categor\\w+", "text")],
)

look(
    "decimal-commas-semicolons",
    "A European export: semicolons and 6,4; read as text the laboratory value is lost.",
    text(add(rows(), "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}".replace(".", ",")), sep=";"),
    "zero",
    [kind("lactate", "number"), "comma"],
    [not_kind("lactate", "categor\\w+", "text")],
)

look(
    "decimal-commas-in-comma-file",
    'Quoted "6,4" in a comma file: 6.4, neither 64 nor text.',
    text(add(rows(), "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}".replace(".", ","))),
    "zero",
    [near(w("lactate"), "comma")],
    [not_kind("lactate", "categor\\w+", "text")],
)

look(
    "one-decimal-comma-among-points",
    "One typist wrote 6,4 in a column of 6.4s; it would become 64, missing, or turn the column into text.",
    text(put(add(rows(), "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}"), 58, lactate="6,4")),
    "zero",
    [near(w("lactate"), "6,4|comma"), line(58)],
    [not_kind("lactate", "categor\\w+", "text")],
)

look(
    "thousands-separators",
    'Costs as "12,400": with a decimal comma that would be 12.4, a thousandth of it.',
    text(add(rows(), "cost", lambda i, row: f"{1200 + 137 * i:,}")),
    "zero",
    [near(w("cost"), "thousand|group|comma|separator")],
    [not_kind("cost", "categor\\w+", "text", "id")],
)

look(
    "german-thousands-and-decimals",
    "1.234,50 in a semicolon file: the point groups, the comma divides.",
    text(add(rows(), "cost", lambda i, row: f"{1200.5 + 137 * i:,.2f}".translate(str.maketrans(",.", ".,"))), sep=";"),
    "any",
    [near(w("cost"), "thousand|decimal|comma|separator|group")],
    [not_kind("cost", "categor\\w+", "text", "id")],
)

look(
    "thousands-ambiguous",
    "Doses such as 1,250 and 2,500 in a semicolon file: a decimal comma or a separator? A silent choice is wrong by 1000.",
    text(add(rows(), "dose", lambda i, row: f"{1 + i % 7},{(i * 50) % 1000:03d}"), sep=";"),
    "any",
    [near(w("dose"), "thousand|decimal|comma|separator|ambiguous|either")],
)

look(
    "non-breaking-space-thousands",
    "French Excel writes 12 400 with a non-breaking space; it looks like a number and is not one.",
    text(add(rows(), "cost", lambda i, row: f"{1200 + 137 * i:,}".replace(",", "\u00a0")), sep=";"),
    "zero",
    [near(w("cost"), "thousand|space|blank|separator|group")],
    [not_kind("cost", "categor\\w+", "text")],
)

look(
    "currency-signs",
    "Costs as € 1200.50: the sign makes a category of every cell.",
    text(add(rows(), "cost", lambda i, row: f"€ {1200.5 + 13 * i:.2f}")),
    "zero",
    [near(w("cost"), "€|currenc|euro|sign|prefix|unit")],
    [not_kind("cost", "categor\\w+", "text", "id")],
)

look(
    "two-currencies",
    "€ and $ in one column: stripping the sign adds up different money.",
    text(add(rows(), "cost", lambda i, row: f"{'$' if i % 4 == 0 else '€'}{1200 + 13 * i}")),
    "any",
    [near(w("cost"), r"€|\$|currenc|sign|unit")],
)

look(
    "percent-signs",
    "Saturation as 97%: text to a careless reader.",
    text(add(rows(), "saturation", lambda i, row: f"{80 + i % 20}%")),
    "zero",
    [near(w("saturation"), "%|percent")],
    [not_kind("saturation", "categor\\w+", "text")],
)

look(
    "percent-and-fraction-mixed",
    "Most cells 97%, two 0.97: taken as they stand the two are a hundred times too low (or high).",
    text(put(put(add(rows(), "saturation", lambda i, row: f"{80 + i % 20}%"), 39, saturation="0.97"), 71, saturation="0.91")),
    "any",
    [near(w("saturation"), "%|percent"), line(39)],
)

look(
    "units-in-cells",
    "Weights as '72 kg', and one as '158 lb'.",
    text(put(add(rows(), "weight", lambda i, row: f"{50 + i % 50} kg"), 63, weight="158 lb")),
    "any",
    [near(w("weight"), r"\bkg\b|unit"), line(63) + r"|\blb\b|categor|text"],
)

look(
    "below-detection-limit",
    "A laboratory writes <0.5; those are the lowest values, not missing and not text.",
    text(put(put(add(rows(), "troponin", lambda i, row: f"{0.5 + i % 41 / 10:.1f}"), 29, troponin="<0.5"), 86, troponin="<0.5")),
    "zero",
    [near(w("troponin"), "<0.5"), line(29)],
    [not_kind("troponin", "categor\\w+", "text")],
)

look(
    "two-numbers-in-a-cell",
    "Blood pressure as 120/80: neither a number nor a date nor a sensible category.",
    text(change(rows(), "bp", lambda i, row: f"{row['bp']}/{row['bp'] - 45}")),
    "any",
    [near(w("bp"), r"\d/\d|\btext\b|split|two numbers|levels|distinct")],
    [not_kind("bp", "date", "number", "ids?")],
)

look(
    "sentinel-minus-999",
    "−999 stands for 'not measured' in six rows; as a number it ruins mean and scale.",
    text(change(rows(), "bp", lambda i, row: -999 if i % 20 == 3 else row["bp"])),
    "zero",
    [near(w("bp"), r"[-−]\s?999")],
)

look(
    "sentinel-9999",
    "9999 stands for 'unknown age'.",
    text(change(rows(), "age", lambda i, row: 9999 if i % 24 == 5 else row["age"])),
    "zero",
    [near(w("age"), r"9,?999")],
)

look(
    "infinity",
    "A division by zero upstream wrote inf; one such cell makes every scaled value NaN.",
    text(put(add(rows(), "ratio", lambda i, row: f"{i % 23 / 7:.3f}"), 52, ratio="inf")),
    "any",
    [near(w("ratio"), r"\binf"), line(52)],
    [not_kind("ratio", "categor\\w+", "text")],
)

look(
    "overflow-1e400",
    "1e400 is no float: it becomes infinity in silence.",
    text(put(add(rows(), "ratio", lambda i, row: f"{i % 23 / 7:.3f}"), 53, ratio="1e400")),
    "any",
    [near(w("ratio"), r"1e\+?400|infin|too large|too big|range"), line(53)],
    [not_kind("ratio", "categor\\w+", "text")],
)

described(
    "infinity-run",
    "The same infinity straight into a run, without a look: training would give NaN.",
    toml(),
    "any",
    [near(w("bp"), r"\binf|not finite|finite"), line(52)],
    [r"\bloss\b[^\n]{0,20}\bnan\b"],
    content=text(put(rows(), 52, bp="inf")),
)

look(
    "huge-integers",
    "A 20-digit national number is more than 64 bits: OverflowError, or rounded so that two people become one.",
    text(add(rows(), "national_no", lambda i, row: 12345678901234567890 + 7919 * i)),
    "zero",
    [near(w("national_no"), r"\bids?\b|identif|digits|too large|large")],
    [not_kind("national_no", "number")],
)

look(
    "negative-age",
    "An age of −3 and a 430: typing errors that nobody sees in 120 rows.",
    text(put(put(rows(), 64, age=-3), 78, age=430)),
    "zero",
    [near(w("age"), r"[-−]\s?3(?!\d)|negative|below"), near(w("age"), r"(?<!\d)430(?!\d)")],
)

look(
    "true-1-yes-mixed",
    "smoker is True, 1, yes, False, 0, no by who typed it: six levels for two facts.",
    text(add(rows(), "smoker", lambda i, row: ["True", "False", "1", "0", "yes", "no"][i % 6])),
    "any",
    [
        near(w("smoker"), r"\btrue\b|\byes\b"),
        near(w("smoker"), "same|spell|mixed|two values|yes/no|boolean|levels|categor|odd|differ|several"),
    ],
    [not_kind("smoker", "number")],
)

look(
    "leading-zero-postcodes",
    "Postcodes 01067: as numbers they lose the zero and gain an order.",
    text(add(rows(), "postcode", lambda i, row: f"{1000 + 67 * (i % 9):05d}")),
    "zero",
    [kind("postcode", "categor", r"ids?\b", "text", "leading", "zero")],
    [not_kind("postcode", "number")],
)

look(
    "quoted-numbers",
    "Every number in quotes: still numbers.",
    "\n".join([",".join(COLUMNS)] + [",".join(f'"{v}"' for v in row.values()) for row in rows()]) + "\n",
    "zero",
    [kind("age", "number"), kind("bp", "number")],
    [not_kind("age", "categor\\w+", "text")],
)

# =========================================================================================================================== dates

look(
    "dates-three-formats-by-column",
    "Three date columns, each in its own format: all of them dates, none of them a category of 120 levels.",
    text(
        add(
            add(rows(), "seen", lambda i, row: f"{1 + i % 28:02d}.{1 + i % 12:02d}.2023"),
            "booked",
            lambda i, row: (date(2023, 1, 1) + timedelta(3 * i)).strftime("%b %d, %Y"),
        )
    ),
    "zero",
    [kind("admitted", "date"), kind("seen", "date"), kind("booked", "date")],
    [not_kind("seen", "categor\\w+"), not_kind("booked", "categor\\w+")],
)

look(
    "dates-ambiguous",
    "03/04/2023 with no day above 12 anywhere: April or March? A silent guess moves patients by months.",
    text(change(rows(), "admitted", lambda i, row: f"{1 + i % 12:02d}/{1 + (i // 12) % 12:02d}/2023")),
    "any",
    [near(w("admitted"), "ambiguous|day[- /]?(first|month|before)|month[- /]?(first|day|before)|either|d/m|m/d|dd|order|%d")],
)

look(
    "dates-day-first-later",
    "The first forty dates fit both orders, the forty-first (25/04/2023) only day first: all must be read so.",
    text(change(rows(), "admitted", lambda i, row: f"{(1 + i % 12) if i < 40 else 13 + i % 15:02d}/{1 + i % 11:02d}/2023")),
    "zero",
    [kind("admitted", "date"), near(w("admitted"), "day|d/m|dd|%d")],
)

look(
    "dates-two-orders",
    "One row can only be day first, another only month first: no reading fits both.",
    text(
        put(
            put(change(rows(), "admitted", lambda i, row: f"{1 + i % 12:02d}/{1 + i % 11:02d}/2023"), 36, admitted="25/04/2023"),
            77,
            admitted="04/25/2023",
        )
    ),
    "any",
    [near(w("admitted"), "day|month|format|order|odd|not a date|mixed|ambiguous|fits?"), line("(?:36|77)")],
)

look(
    "dates-mixed-formats",
    "ISO dates, and two that somebody typed by hand: they become missing in silence.",
    text(put(put(rows(), 35, admitted="14.05.2023"), 79, admitted="May 3, 2023")),
    "any",
    [kind("admitted", "date", "format", "mixed"), line(35), line(79)],
    [not_kind("admitted", "categor\\w+", "text")],
)

look(
    "date-that-is-none",
    "30 February.",
    text(put(rows(), 61, admitted="2023-02-30")),
    "any",
    [near(w("admitted"), "2023-02-30|date"), line(61)],
    [not_kind("admitted", "categor\\w+", "text")],
)

look(
    "excel-serial-dates",
    "Excel turned three dates into day counts (45012).",
    text(put(put(put(rows(), 26, admitted=45012), 57, admitted=45100), 90, admitted=44991)),
    "any",
    [near(w("admitted"), "45012|serial|day count|odd|not a date"), line(57)],
    [not_kind("admitted", "categor\\w+", "number", "text")],
)

# ============================================================================================ columns that are no inputs, and names

look(
    "medical-record-number",
    "A unique number for every row is learnt by heart when taken as an input.",
    text(add(rows(), "mrn", lambda i, row: 700000 + (i * 7919) % 99991)),
    "zero",
    [near(w("mrn"), rf"\bids?\b|identif|{LEFT}", 120)],
    [not_kind("mrn", "number")],
)

look(
    "row-number-and-sorted",
    "A row number in a table that is sorted by outcome: the number gives the outcome away.",
    text([{"row": k + 1, **row} for k, row in enumerate(sorted(rows(), key=lambda row: row["outcome"]))]),
    "zero",
    [near(w("row"), rf"\bids?\b|identif|row number|counts|{LEFT}|leak", 120)],
    [not_kind("row", "number")],
)

look(
    "constant-column",
    "country is NL in each row; nothing to learn, and a scale of zero divides by zero.",
    text(add(rows(), "country", lambda i, row: "NL")),
    "zero",
    [near(w("country"), "constant|one value|same value|single value", 120)],
)

look(
    "constant-number-column",
    "A numeric constant has a standard deviation of zero: NaN after scaling.",
    text(add(rows(), "device", lambda i, row: 3)),
    "zero",
    [near(w("device"), "constant|one value|same value|single value", 120)],
)

look(
    "empty-column",
    "A column without a single value.",
    text(add(rows(), "remarks", lambda i, row: "")),
    "zero",
    [near(w("remarks"), r"\bempty|no values?|all missing|nothing|100 ?%|120 (of 120 )?missing|constant", 120)],
)

look(
    "mostly-missing-column",
    "Filled in six rows of 120: its mean would stand in for 95 % of the patients.",
    text(add(rows(), "lvef", lambda i, row: 40 + i % 30 if i % 20 == 7 else "")),
    "zero",
    [near(w("lvef"), r"missing[^\n]{0,40}|114|95 ?%"), r"114|95(\.0)? ?%"],
)

look(
    "duplicate-column-names",
    "Two columns called bp (systolic, diastolic): one would overwrite the other.",
    text(rename(add(rows(), "bp2", lambda i, row: row["bp"] - 45))).replace("bp,admitted,bp2", "bp,admitted,bp", 1),
    "any",
    [near(w("bp"), r"twice|duplicate|two columns|more than once|repeat|same name|\b2 columns", 120)],
)

look(
    "pandas-unnamed-index",
    "to_csv without index=False: a first column 'Unnamed: 0' that counts rows.",
    text([{"Unnamed: 0": i, **row} for i, row in enumerate(rows())]),
    "zero",
    [near("Unnamed: 0", rf"\bids?\b|index|row number|identif|{LEFT}", 120)],
    [r"Unnamed: 0[ \t:|│,(=]{1,40}number"],
)

look(
    "column-without-name",
    "The index column as pandas writes it: an empty name.",
    text([{"": i, **row} for i, row in enumerate(rows())]),
    "any",
    [r"no name|without (a )?name|unnamed|nameless|empty name|name is (empty|missing)|column 1\b|first column"],
)

look(
    "trailing-delimiter",
    "Each line ends with a comma, header too: an empty column without a name.",
    "".join(f"{each},\n" for each in text(rows()).splitlines()),
    "any",
    [r"no name|without (a )?name|unnamed|nameless|empty|trailing|column 8\b|last column"],
)

look(
    "header-missing",
    "No header: the first patient becomes the names of the columns, and 'outcome' is nowhere.",
    text(rows(), header=False),
    "nonzero",
    [r"header|first line|column names|names? (of|for) (the )?columns", w("outcome")],
)

look(
    "title-lines-above-header",
    "The export has a title, a date and an empty line above the header; one bad cell tells whether lines are counted right.",
    "Mortality export; ward statistics\nprinted 2024-01-03\n\n" + text(put(rows(), 47, bp="unknown")),
    "any",
    [
        r"(header[^\n]{0,60}\b4\b|line 4|above|titles?\b|skip|not (the )?header|before the header)|header|first line",
        line(50) + r"|no column|not a column|header",
    ],
    [r"\bline 47\b"],
)

look(
    "units-row-below-header",
    "The second line holds units: a first patient of 'years' and 'mmHg'.",
    text(rows()).replace("\n", "\n,,years,,mmHg,,\n", 1),
    "any",
    [near("years|mmHg|unit", r"line 2\b|:2\b|second line|lines? 2\b")],
)

look(
    "total-row-at-end",
    "The report ends with a total: a patient of age 6642 at no site.",
    text(rows()) + "Total,,6642,,15600,,\n",
    "any",
    [line(122), r"6642|total|outcome|hospital|label|site"],
)

look(
    "blanks-around-column-names",
    "'patient, hospital, age , …': the label is called ' outcome'.",
    text(rows()).replace(",".join(COLUMNS), ", ".join(COLUMNS[:-1]) + " , outcome ", 1),
    "any",
    [r"blank|space|trim|strip"],
    [r"\bno column\b(?![\s\S]*(blank|space))"],
)

look(
    "name-with-line-break",
    "A name in two lines inside quotes, as wrapped cells in Excel are exported.",
    text(rows()).replace("bp,", '"bp\n(mmHg)",', 1),
    "any",
    [r"bp\s*(\\n|↵|␤|\s)?\s*\(mmHg\)", kind("age", "number")],
)

look(
    "non-ascii-names",
    "Names and values in other alphabets.",
    text(rename(rows(), age="Größe", bp="血压", hospital="Krankenhaus-Ort", outcome="Résultat")),
    "zero",
    ["Größe", "血压", "Résultat", kind("血压", "number")],
    argv=["look", "data.csv", "--label", "Résultat", "--site", "Krankenhaus-Ort"],
)

look(
    "composed-and-decomposed-accents",
    "The header has e + combining accent (macOS), the command é: they look alike and differ.",
    text(rename(rows(), outcome=unicodedata.normalize("NFD", "résultat"))),
    "any",
    [r"r(é|e\u0301)sultat"],
    argv=["look", "data.csv", "--label", "résultat", "--site", "hospital"],
)

described(
    "columns-named-inputs-and-labels",
    "Columns called inputs and labels collide with the program's own fields.",
    toml(),
    "zero",
    [r"bundle|round"],
    content=text(rename(rows(), age="inputs", bp="labels")),
)

look(
    "column-named-labels-look",
    "A column called labels beside the label outcome: an input like another.",
    text(rename(rows(), age="inputs", bp="labels")),
    "zero",
    [kind("inputs", "number"), kind("labels", "number"), near("positive", w("died"))],
)

look(
    "free-text-column",
    "Doctors' notes: a hundred different sentences are no category.",
    text(
        add(
            rows(),
            "note",
            lambda i, row: (
                f"Patient {i} seen by ward {i % 7}, complains of {['pain', 'fever', 'cough'][i % 3]} since {i % 9 + 2} days; "
                "to be reviewed."
            ),
        )
    ),
    "zero",
    [kind("note", "text"), near(w("note"), LEFT + "|text", 200)],
    [not_kind("note", "categor\\w+")],
)

look(
    "category-with-many-levels",
    "A diagnosis code with a level for almost each patient: one column becomes ninety.",
    text(add(rows(), "icd", lambda i, row: f"{'ABCIJK'[i * 37 % 90 % 6]}{i * 37 % 90:02d}.1")),
    "zero",
    [near(w("icd"), r"levels?|rare|distinct|different|\b90\b|many")],
    [not_kind("icd", "ids?")],
)

look(
    "nearly-the-same-level",
    "sex as F, f, 'F ' and Female in one column: one fact, four levels.",
    text(put(put(put(rows(), 15, sex="f"), 37, sex="F "), 59, sex="Female")),
    "any",
    [near(w("sex"), r"\bFemale\b|capital|case|blank|space|spell|rare|levels")],
)

# ======================================================================================================== files, encodings, lines

look(
    "utf8-bom",
    "Excel's 'CSV UTF-8' begins with a mark; the first column, the site, is then called \\ufeffhospital.",
    text([{"hospital": row["hospital"], **row} for row in rows()]).encode("utf-8-sig"),
    "zero",
    [w("north"), kind("age", "number")],
    ["\ufeff", r"\\ufeff", "ï»¿"],
)

look(
    "cp1252",
    "Saved by an old Excel: Zürich becomes Z\ufffdrich, or UnicodeDecodeError.",
    text(rows(sites=("Zürich", "Genève", "Bern"))).encode("cp1252"),
    "zero",
    ["Zürich", "Genève", r"1252|latin|8859|encod"],
    ["\ufffd"],
)

look(
    "utf16",
    "Excel's 'Unicode text': UTF-16 with tabs.",
    text(rows(sites=("Zürich", "Genève", "Bern")), sep="\t").encode("utf-16"),
    "any",
    [r"Zürich|utf-?16", "utf-?16|encod"],
    ["\ufffd"],
)

case(
    "two-files-two-encodings",
    "One site sends UTF-8, the other cp1252: 'Köln' becomes two places.",
    {
        "north.csv": text(add(rows(60), "city", lambda i, row: ["Köln", "Bonn"][i % 2])).encode("utf-8"),
        "south.csv": text(add(rows(60, seed=2), "city", lambda i, row: ["Köln", "Bonn"][i % 2])).encode("cp1252"),
    },
    [["look", "north.csv", "south.csv", "--label", "outcome"]],
    "any",
    [near(r"south\.csv|south", "1252|latin|8859|encod")],
    ["\ufffd", "KÃ¶ln"],
)

for name, sep, words in (("semicolons", ";", "semicolon|;"), ("tabs", "\t", r"\btabs?\b|\\t"), ("pipes", "|", r"pipe|\||vertical bar")):
    look(
        f"{name}",
        f"Separated by {name}: read with commas it is a table of one column.",
        text(rows(), sep=sep),
        "zero",
        [words, kind("age", "number"), w("north"), near("positive", w("died"))],
    )

look(
    "semicolons-with-sep-line",
    "Excel's own first line 'sep=;'.",
    "sep=;\n" + text(put(rows(), 47, bp="unknown"), sep=";"),
    "any",
    [r"header|first line|line 1\b|excel|" + line(48)],
    [r"\bline 47\b"],
)

look(
    "commas-in-semicolon-file",
    "Semicolons separate, and the free text is full of commas: the more frequent sign is the wrong one.",
    text(add(rows(), "note", lambda i, row: f"fever, cough, pain, rash, case {i}, seen, discharged, to be called, phone"), sep=";"),
    "zero",
    [kind("age", "number"), kind("note", "text", r"ids?\b", "categor"), near("positive", w("died"))],
)

lines = text(rows()).splitlines()
look(
    "line-too-short",
    "A line was cut: two values are missing at its end, or everything is shifted to the left.",
    "\n".join([*lines[:39], ",".join(lines[39].split(",")[:5]), *lines[40:]]) + "\n",
    "any",
    [line(40), r"values?|fields?|cells?|columns?"],
)

look(
    "line-too-long",
    "An unquoted decimal comma (36,5 in age): the line has a value more and all cells behind it are shifted.",
    "\n".join([*lines[:41], lines[41].replace(",M,", ",5,M,").replace(",F,", ",5,F,"), *lines[42:]]) + "\n",
    "any",
    [line(42), r"values?|fields?|cells?|columns?"],
)

look(
    "quote-never-closed",
    "A quote opens in line 55 and swallows the other 67 lines as one cell: half of the patients vanish.",
    "\n".join([*lines[:54], '"' + lines[54], *lines[55:]]) + "\n",
    "nonzero",
    [line(55), r"quot|\""],
)

look(
    "inch-mark-in-cell",
    "5'10\" in a height: a quote in the middle of a cell, as typed.",
    text(rows()).replace("patient,", "height,patient,", 1).replace("\nP", "\n170,P").replace("\n170,", "\n5'10\",", 1),
    "any",
    [near(w("height"), r"5'10|line 2\b|:2\b|quot|odd")],
)

noted = add(rows(), "note", lambda i, row: "came by ambulance,\nwith mother,\nno pain" if i == 10 else "")
look(
    "line-breaks-in-cells",
    "A note with two line breaks in quotes: the bad cell of row 60 is in line 63 of the file, not 61.",
    text(put(noted, 61, bp="unknown")),
    "zero",
    [near(w("bp"), "unknown"), line(63)],
    [r"\bline 61\b"],
)

look(
    "old-mac-line-ends",
    "Carriage returns only: the file is one line to most readers.",
    text(rows(), end="\r"),
    "any",
    [kind("age", "number") + r"|line end|carriage|\\r"],
)

look(
    "mixed-line-ends",
    "Two exports pasted together, one with Windows line ends: 'survived\\r' is a third class.",
    text(rows()[:60], end="\r\n").encode() + text(rows()[60:], header=False).encode(),
    "zero",
    [w("survived"), r"\b(2|two)\b[^\n]{0,30}class|class|positive"],
    [r"survived\\r", r"\b(3|three|4|four) classes"],
)

look(
    "header-again-in-the-middle",
    "Two exports pasted together with both headers: a patient of age 'age'.",
    text(rows()[:60]) + text(rows()[60:]),
    "any",
    [line(62), r"header|names|repeat|outcome|age"],
)

look(
    "empty-lines-between",
    "Empty lines between blocks; they are no patients, and the bad cell after them keeps its own line number.",
    "\n\n".join(
        [
            "\n".join(lines[:60]),
            "\n".join([each if k else each.replace(each.split(",")[4], "unknown", 1) for k, each in enumerate(lines[60:])]),
        ]
    )
    + "\n\n\n",
    "any",
    [line(62)],
    [r"\bline 61\b"],
)

look(
    "nul-bytes",
    "A damaged copy: zero bytes in the middle.",
    text(rows()).encode()[:2000] + b"\0" * 64 + text(rows()).encode()[2000:],
    "any",
    [r"nul\b|zero byte|\\x00|binary|damaged|not (a )?text|null|line \d+"],
)

look(
    "very-long-cell",
    "200 000 characters pasted into one note: a csv reader stops at 131 072, and the page is flooded when it is printed.",
    text(add(rows(), "note", lambda i, row: "x" * 200_000 if i == 43 else f"note {i} of this ward")),
    "any",
    [w("note")],
    [r"x{2000}", r"field larger than field limit"],
)

look("empty-file", "Zero bytes: the export failed.", "", "nonzero", [r"data\.csv", "empty|no (rows|lines|header|content)|nothing"])
look(
    "header-only",
    "A header and no rows.",
    ",".join(COLUMNS) + "\n",
    "nonzero",
    [r"no rows|(?<!\d)0 rows|only (a|the) header|no data|without rows|header"],
)
case(
    "folder-instead-of-file",
    "data.csv is a folder (Spark writes such).",
    {"data.csv/part-0000.csv": text(rows()), "data.csv/_SUCCESS": ""},
    [LOOK],
    "nonzero",
    [r"data\.csv", "folder|directory"],
)
look(
    "excel-renamed",
    "An Excel workbook renamed to .csv.",
    workbook(rows()),
    "any",
    [r"excel|workbook|xlsx|spreadsheet"],
    [r"PK\x03", r"\[Content_Types\]"],
)
case(
    "csv-named-parquet",
    "A CSV named .parquet.",
    {"data.parquet": text(rows())},
    [["look", "data.parquet", "--label", "outcome", "--site", "hospital"]],
    "any",
    [near("parquet", r"csv|\btext\b|\bnot\b|cannot|\bno\b")],
)
case(
    "gzipped",
    "A gzipped CSV, as exports over a line are.",
    {"data.csv.gz": gzip.compress(text(rows()).encode(), mtime=0)},
    [["look", "data.csv.gz", "--label", "outcome", "--site", "hospital"]],
    "any",
    [kind("age", "number") + r"|gz|compress|unpack"],
)
look(
    "file-misspelled",
    "dta.csv instead of data.csv.",
    text(rows()),
    "nonzero",
    [r"dta\.csv", r"(?<!\w)data\.csv|no such|not (there|found)|does not exist|no file"],
    argv=["look", "dta.csv", *LOOK[2:]],
)
look(
    "web-page-instead-of-table",
    "The download was a log-in page saved as data.csv.",
    "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body>Please sign in, then try again.</body></html>\n",
    "nonzero",
    [r"html|web page|outcome|not a table|header"],
)

# =========================================================================================================================== label

look("no-label-given", "look without --label.", text(rows()), "any", ["--label|label"], argv=["look", "data.csv"])
look(
    "label-misspelled",
    "--label outcom.",
    text(rows()),
    "nonzero",
    [w("outcom"), w("outcome")],
    argv=["look", "data.csv", "--label", "outcom", "--site", "hospital"],
)
look(
    "label-other-case",
    "--label Outcome where the file has outcome.",
    text(rows()),
    "any",
    [r"(?-i:\boutcome\b)", r"(?-i:\bOutcome\b)"],
    argv=["look", "data.csv", "--label", "Outcome", "--site", "hospital"],
)
look(
    "label-missing-values",
    "Two rows have no outcome yet; they would become a third class '' or count as negative.",
    text(put(put(rows(), 28, outcome=""), 91, outcome="")),
    "any",
    [near(w("outcome") + "|label", MISSING), line(28) + r"|\b(2|two) rows"],
    [r"\b(3|three) classes"],
)
described(
    "label-missing-values-run",
    "The same straight into a run.",
    toml(),
    "any",
    [near(w("outcome") + "|label", MISSING + "|lack|no label"), line(28) + r"|\b(2|two) rows"],
    content=text(put(put(rows(), 28, outcome=""), 91, outcome="")),
)
look(
    "label-nan",
    "The word NaN in the label, from pandas: a class of its own, or float('nan').",
    text(put(put(rows(), 31, outcome="NaN"), 88, outcome="nan")),
    "any",
    [near(w("outcome") + "|label", MISSING + r"|\bnan\b"), line(31) + r"|\b(2|two) rows"],
    [r"\b(3|three|4|four) classes"],
)
described(
    "label-nan-0-1-run",
    "0.0/1.0 with NaN, as pandas writes integers with gaps: trained on, NaN becomes class −2147483648.",
    toml(positive="[1]"),
    "any",
    [near(w("outcome") + "|label", MISSING + r"|\bnan\b|positive"), line(31) + r"|\brows?\b|positive"],
    [r"\bloss\b[^\n]{0,20}\bnan\b"],
    content=text(put(change(rows(), "outcome", lambda i, row: "1.0" if row["outcome"] == "died" else "0.0"), 31, outcome="NaN")),
)
look(
    "label-pending-class",
    "Three rows say 'pending': a third class of three rows, or two classes with the wrong rows in one of them?",
    text(change(rows(), "outcome", lambda i, row: "pending" if i in (20, 50, 80) else row["outcome"])),
    "any",
    ["pending", r"\b(3|three)\b"],
)
look(
    "label-one-class",
    "The export was filtered: everyone survived.",
    text(change(rows(), "outcome", lambda i, row: "survived")),
    "nonzero",
    ["survived", r"one class|single class|only (one|class)|one value|constant|same|nothing to (learn|tell)|two classes|no second"],
)
look(
    "label-real-number",
    "The label is the length of stay in days: 120 classes of one row each.",
    text(add(rows(), "stay", lambda i, row: f"{1 + (i * 37 % 113) / 8:.3f}")),
    "nonzero",
    [w("stay"), r"real|continuous|regression|distinct|different|numbers?|numeric|classes"],
    argv=["look", "data.csv", "--label", "stay", "--site", "hospital"],
)
look(
    "label-is-an-id",
    "--label patient: a class for each patient.",
    text(rows()),
    "nonzero",
    [w("patient"), r"distinct|different|\bids?\b|every row|each row|classes|one row"],
    argv=["look", "data.csv", "--label", "patient", "--site", "hospital"],
)
look(
    "label-trailing-blank",
    "'died ' and 'died' are two classes to a computer, and the positives are split.",
    text(change(rows(), "outcome", lambda i, row: row["outcome"] + (" " if i % 9 == 4 else ""))),
    "any",
    [r"blank|space|trim|strip", w("died")],
    [r"\b(3|three|4|four) classes(?![\s\S]{0,200}(blank|space))"],
)
look(
    "label-yes-and-Yes",
    "Yes, yes and YES by site.",
    text(change(rows(), "outcome", lambda i, row: [("Yes", "No"), ("yes", "no"), ("YES", "NO")][i % 3][row["outcome"] != "died"])),
    "any",
    [r"capital|upper|lower|\bcase\b|spell|written|differ", r"\byes\b"],
)
look(
    "label-named-as-site",
    "--site outcome: each site has one class.",
    text(rows()),
    "nonzero",
    [w("outcome"), near("label", "site")],
    argv=["look", "data.csv", "--label", "outcome", "--site", "outcome"],
)
look(
    "label-named-as-group",
    "--group outcome: all who died are one patient.",
    text(rows()),
    "nonzero",
    [w("outcome"), near("label", "group")],
    argv=[*LOOK, "--group", "outcome"],
)
look(
    "positive-not-there",
    "--positive dead; the file says died.",
    text(rows()),
    "nonzero",
    [w("dead"), w("died"), w("survived")],
    argv=[*LOOK, "--positive", "dead"],
)
described("positive-not-there-run", 'positive = ["dead"] in the file.', toml(positive='["dead"]'), "nonzero", [w("dead"), w("died")])
look(
    "positive-unsaid-died-survived",
    "Nobody says which class is positive: 'survived' is the last in the alphabet, and every probability would be of survival.",
    text(rows()),
    "zero",
    [near("positive", w("died"), 120)],
    [r"positive(?: class)?(?: is)?[ :=\"'\[]+survived"],
)
look(
    "positive-unsaid-1-2",
    "SPSS codes 1 = survived, 2 = died: nothing says which; the choice must be said, with how to change it.",
    text(change(rows(), "outcome", lambda i, row: 2 if row["outcome"] == "died" else 1)),
    "any",
    ["positive", r"--positive|positive ?="],
)
described(
    "positive-is-a-number",
    "positive = [1] in TOML, '1' in the file: the same class.",
    toml(positive="[1]"),
    "zero",
    [r"bundle|round"],
    ["not a class|no class"],
    content=text(change(rows(), "outcome", lambda i, row: int(row["outcome"] == "died"))),
)
described(
    "positive-as-string",
    'positive = "died" instead of a list: taken letter by letter it is d, i, e, d.',
    toml(positive='"died"'),
    "any",
    [r"bundle|round|\[\"died\"\]|list"],
    [r"class(es)? ['\"]?d['\"]?,"],
)
described(
    "positive-all-classes",
    "Both classes are positive.",
    toml(positive='["died", "survived"]'),
    "nonzero",
    ["positive", r"all|every|both|no negative|none left|nothing left"],
)
look(
    "two-positives-in-all",
    "Two deaths in 120 rows over three sites: no split has any.",
    text(change(rows(), "outcome", lambda i, row: "died" if i in (30, 70) else "survived")),
    "any",
    [near(w("died") + "|positives?", r"(?<![\d.])(2|two)(?![\d.])"), r"few|only|rare|not enough|too little|at least|no positive|without"],
)

# =========================================================================================================================== sites

look(
    "site-misspelled",
    "--site hopital.",
    text(rows()),
    "nonzero",
    [w("hopital"), w("hospital")],
    argv=["look", "data.csv", "--label", "outcome", "--site", "hopital"],
)
look(
    "site-missing-values",
    "Two rows without a hospital: a site called '' or 'nan'.",
    text(put(put(rows(), 34, hospital=""), 87, hospital="")),
    "any",
    [near(w("hospital") + "|site", MISSING), line(34) + r"|\b(2|two) rows"],
)
described(
    "site-missing-values-run",
    "The same straight into a run.",
    toml(),
    "any",
    [near(w("hospital") + "|site", MISSING + "|no site"), line(34) + r"|\b(2|two) rows"],
    content=text(put(put(rows(), 34, hospital=""), 87, hospital="")),
)
look(
    "site-one-value",
    "One hospital only: nothing is federated.",
    text(rows(sites=("north",))),
    "any",
    [r"one site|single site|only (one|site)|(?<!\d)1 site|one value|one hospital|constant"],
)
look(
    "site-per-row",
    "--site patient: 120 sites of one row.",
    text(rows()),
    "any",
    [w("patient"), r"every row|each row|one row|(?<!\d)1 row|120 sites|row (each|a site)"],
    argv=["look", "data.csv", "--label", "outcome", "--site", "patient"],
)
look(
    "site-is-a-number-column",
    "--site bp: dozens of sites called 131, 118, …",
    text(rows()),
    "any",
    [w("bp"), r"\d+ sites|many sites|few rows|one row|(?<!\d)1 row|single row|few"],
    argv=["look", "data.csv", "--label", "outcome", "--site", "bp"],
)
look(
    "site-with-one-row",
    "The hospital 'east' has sent one patient: no validation, no spread, and its row is recognisable.",
    text(put(rows(), 66, hospital="east")),
    "any",
    [near(w("east"), r"(?<![\d.])1(?![\d.])|\bone\b|single"), r"one row|(?<!\d)1 row|single row|few|too small|only"],
)
look(
    "site-with-one-class",
    "Nobody died in the west: no AUC there, and the site pulls the model.",
    text(change(rows(), "outcome", lambda i, row: "survived" if row["hospital"] == "west" else row["outcome"])),
    "any",
    [
        near(w("west"), r"one class|single class|no positives?|(?<![\d.])0(?![\d.])|only|none|no ['\"]?died", 120),
        r"one class|single class|no positives?|(?<!\d)0 positives|only|without positives|no ['\"]?died",
    ],
)
look(
    "site-spelled-three-ways",
    "north, North and 'north ' are one hospital.",
    text(
        change(
            rows(), "hospital", lambda i, row: ["north", "North", "north "][i // 3 % 3] if row["hospital"] == "north" else row["hospital"]
        )
    ),
    "any",
    [r"(?-i:\bNorth\b)", r"capital|upper|lower|\bcase\b|spell|blank|space|trim|alike|same"],
)
described(
    "site-and-dirichlet",
    "site = hospital together with [sites] how = dirichlet: which of the two? The real hospitals would silently be mixed up.",
    toml(more='\n[sites]\nhow = "dirichlet"\nnumber = 4\nalpha = 0.5\n'),
    "nonzero",
    ["dirichlet", r"\bsite\b|hospital"],
)
look(
    "patient-at-two-sites",
    "Two patients were transferred: their rows are at two sites, and in training and test at once.",
    text(change(visits(), "patient", lambda i, row: "P00007" if i in (0, 1) else "P00008" if i in (6, 8) else row["patient"])),
    "zero",
    [
        near(r"patients?|group", r"several sites|two sites|2 sites|more than one site|both|different sites|sites"),
        r"P0000[78]|(?<![\d.])2(?![\d.])|\btwo\b",
    ],
    argv=[*LOOK, "--group", "patient"],
)
look(
    "patients-repeat-no-group",
    "Each patient has two rows and --group was forgotten: the same patient is in training and test.",
    text(visits()),
    "zero",
    [near(w("patient"), r"--group|group")],
)
look("group-misspelled", "--group pateint.", text(visits()), "nonzero", [w("pateint"), w("patient")], argv=[*LOOK, "--group", "pateint"])
look(
    "group-missing-values",
    "Three rows without a patient: together they are one patient called ''.",
    text(put(put(put(visits(), 21, patient=""), 49, patient=""), 93, patient="")),
    "any",
    [near(r"patient|group", MISSING), line(49) + r"|\b(3|three) rows"],
    argv=[*LOOK, "--group", "patient"],
)
look(
    "exact-duplicate-rows",
    "The last thirty rows were exported twice.",
    text(rows() + rows()[-30:]),
    "any",
    [r"duplicat|twice|repeat|same row|identical|double|copies|several rows|more than once", r"(?<![\d.])(30|60)(?![\d.])|" + line(122)],
)
look(
    "units-differ-by-site",
    "Glucose in mg/dl at north and south, in mmol/l in the west: one column, two scales.",
    text(add(rows(), "glucose", lambda i, row: round((90 + i * 37 % 60) / (18 if row["hospital"] == "west" else 1), 1))),
    "zero",
    [near(w("glucose"), r"shift|unit|differ|scale|times|factor"), near(w("glucose"), w("west"))],
)
look(
    "column-empty-at-a-site",
    "The west never measures bp: missing tells the site.",
    text(change(rows(), "bp", lambda i, row: "" if row["hospital"] == "west" else row["bp"])),
    "zero",
    [near(w("bp"), w("west")), near(w("bp"), MISSING)],
)
look(
    "category-coded-by-site",
    "sex is F/M at two sites and 1/2 in the west.",
    text(change(rows(), "sex", lambda i, row: {"F": 1, "M": 2}[row["sex"]] if row["hospital"] == "west" else row["sex"])),
    "any",
    [near(w("sex"), w("west")), r"only (at|in)|differ|shift|coded|levels|values"],
)

# =========================================================================================================================== leaks

LEAK = r"leak|same as|is the label|gives? away|determin|predicts?|tells?|equals|copy|another name|alone"
look(
    "leak-label-renamed",
    "discharge_status is the outcome in other words: a perfect model that is worth nothing.",
    text(add(rows(), "discharge_status", lambda i, row: "D" if row["outcome"] == "died" else "A")),
    "any",
    [near("discharge_status", LEAK), "leak"],
)
look(
    "leak-label-as-number",
    "outcome_code is 1 for died.",
    text(add(rows(), "outcome_code", lambda i, row: int(row["outcome"] == "died"))),
    "any",
    [near("outcome_code", LEAK), "leak"],
)
look(
    "leak-almost",
    "status_30d is the outcome but for two rows.",
    text(add(rows(), "status_30d", lambda i, row: "dead" if (row["outcome"] == "died") != (i in (12, 40)) else "alive")),
    "any",
    [near("status_30d", LEAK), "leak"],
)
look(
    "leak-filled-for-positives",
    "death_date is filled only for those who died: that it is missing says it all.",
    text(
        add(
            rows(),
            "death_date",
            lambda i, row: (date.fromisoformat(row["admitted"]) + timedelta(i % 30 + 1)).isoformat() if row["outcome"] == "died" else "",
        )
    ),
    "any",
    [near("death_date", LEAK + "|only|filled"), "leak"],
)
described(
    "leak-run",
    "The same into a run without a look: the program should say it before it reports an AUC of 1.",
    toml(),
    "any",
    [near("discharge_status", LEAK)],
    content=text(add(rows(), "discharge_status", lambda i, row: "D" if row["outcome"] == "died" else "A")),
)

# ================================================================================================================= several files

DIFFER = r"only (in|at)|missing|not in|lacks?|no column|has no|same|spell|rename|differ|mean|without|absent"
FILES = ["look", "north.csv", "south.csv", "--label", "outcome"]


def pair(name, about, north, south, exit, says, never=(), argv=None, **more):
    case(name, about, {"north.csv": north, "south.csv": south}, [argv or FILES], exit, says, never, **more)


one, other = without(rows(60), "hospital"), without(rows(60, seed=2), "hospital")
pair(
    "files-other-order",
    "south has its columns in another order: by position, ages would be dates.",
    text(one),
    text(other, columns=["outcome", "bp", "patient", "admitted", "sex", "age"]),
    "zero",
    [kind("bp", "number"), kind("age", "number"), kind("admitted", "date"), w("north"), w("south")],
    [not_kind("age", "categor\\w+", "text", "date")],
)
pair(
    "files-missing-column",
    "south has no bp.",
    text(one),
    text(without(other, "bp")),
    "any",
    [near(w("bp"), r"south"), r"missing|lacks?|no column|without|not in|has no|absent|only in"],
)
pair(
    "files-other-spelling",
    "south calls it BP and Age: two columns, each half empty.",
    text(one),
    text(rename(other, bp="BP", age="Age ")),
    "any",
    [r"(?-i:\bBP\b)", r"(?-i:\bAge\b)", r"south", DIFFER],
)
pair(
    "files-other-word",
    "south calls bp 'blood_pressure'.",
    text(one),
    text(rename(other, bp="blood_pressure")),
    "any",
    ["blood_pressure", w("bp"), "south", DIFFER],
)
pair(
    "files-other-classes",
    "south codes the outcome 1/0: four classes, two at each site.",
    text(one),
    text(change(other, "outcome", lambda i, row: int(row["outcome"] == "died"))),
    "any",
    [near("south", r"class|label|outcome|values"), w("died"), r"(?<![\w.])[01](?![\w.])|\b(4|four)\b"],
)
pair(
    "files-one-without-label",
    "south has not sent outcomes.",
    text(one),
    text(without(other, "outcome")),
    "nonzero",
    [near("south", w("outcome"))],
)
pair(
    "files-other-delimiters",
    "south uses semicolons and decimal commas.",
    text(add(one, "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}")),
    text(add(other, "lactate", lambda i, row: f"{1 + i % 31 / 10:.1f}".replace(".", ",")), sep=";"),
    "any",
    [near("south", r"semicolon|delimiter|separat|[\"'`];[\"'`]|decimal"), kind("lactate", "number")],
    [not_kind("lactate", "categor\\w+", "text")],
)
pair(
    "files-other-kind",
    "age is a number at north and a band (60-69) at south.",
    text(one),
    text(change(other, "age", lambda i, row: f"{row['age'] // 10 * 10}-{row['age'] // 10 * 10 + 9}")),
    "any",
    [near(w("age"), "south"), near(w("age"), r"not a number|no number|odd|\d0-\d9|kind|differ|but (a )?categor")],
)
pair(
    "files-same-file-twice",
    "north.csv given twice: two sites with the same patients.",
    text(one),
    text(other),
    "any",
    [r"twice|same file|duplicat|repeat|already|same rows|more than once|identical"],
    argv=["look", "north.csv", "north.csv", "--label", "outcome"],
)
pair(
    "files-same-rows",
    "south.csv is a copy of north.csv under another name.",
    text(one),
    text(one),
    "any",
    [r"same rows|identical|duplicat|copy|copies|same patients?|several sites|both|equal|same content|two sites"],
)
pair(
    "files-and-a-site-column",
    "The files also have a hospital column and --site is not given: it is the site in disguise.",
    text(change(rows(60), "hospital", lambda i, row: "north")),
    text(change(rows(60, seed=2), "hospital", lambda i, row: "south")),
    "any",
    [near(w("hospital"), r"\bsite\b|constant|same|one value|--site", 200)],
)
case(
    "files-same-name",
    "Two folders with a data.csv each: both sites would be called 'data'.",
    {"north/data.csv": text(one), "south/data.csv": text(other)},
    [["look", "north/data.csv", "south/data.csv", "--label", "outcome"]],
    "any",
    [near(r"\bsites?\b", r"(?<!\w)north(?!\w)"), near(r"\bsites?\b", r"(?<!\w)south(?!\w)")],
    [r"\b(1|one) site\b"],
)

TEST = 'test = "test.csv"\n'
GUESS = 'that [data] test = "test.csv" names a file of test rows'
described(
    "test-file-missing-column",
    "The test file has no bp.",
    toml(data=TEST),
    "nonzero",
    [w("bp"), r"test"],
    ["unknown key"],
    files={"test.csv": text(without(rows(60, seed=3), "bp"))},
    assumes=GUESS,
)
described(
    "test-file-unseen-category",
    "The test file has a sex 'X' that training never saw: encoded as what?",
    toml(data=TEST),
    "any",
    [near(w("sex"), r"(?<!\w)X(?!\w)|unseen|not seen|never|new|unknown")],
    ["unknown key"],
    files={"test.csv": text(put(rows(60, seed=3), 23, sex="X"))},
    assumes=GUESS,
)
described(
    "test-file-is-training-file",
    'test = "data.csv": tested on what it was trained on.',
    toml(data='test = "data.csv"\n'),
    "any",
    [r"same (file|rows|patients|table)|also in|both|overlap|already|trained on|identical|twice"],
    ["unknown key"],
    assumes=GUESS,
)

# ========================================================================================================================= schema

SCHEMA = [*LOOK, "--out", "data.schema.toml"]
WITH = toml(data='schema = "data.schema.toml"\n')


def edited(name, about, find, replace, exit, says, never=(), **more):
    case(
        name,
        about,
        {"data.csv": text(rows()), "run.toml": WITH},
        [SCHEMA, RUN],
        exit,
        says,
        never,
        edits=[{"after": 1, "file": "data.schema.toml", "find": find, "replace": replace}],
        schema_format=True,
        **more,
    )


edited(
    "schema-unknown-kind",
    'Somebody typed kind = "numbr".',
    r'(?m)^(?!\s*#)([^#\n]*)"number"',
    r'\1"numbr"',
    "nonzero",
    ["numbr", w("number"), "schema"],
)
edited(
    "schema-misspelled-key",
    "Somebody typed knid for kind: ignored in silence, the edit has no effect.",
    r"(?m)^(?!\s*#)([^#\n]*)\bkind\b",
    r"\1knid",
    "nonzero",
    ["knid", w("kind")],
)
edited(
    "schema-wrong-kind",
    "A category (F/M) declared a number: all its cells become missing.",
    r'(?m)^(?!\s*#)([^#\n]*)"category"',
    r'\1"number"',
    "any",
    [r"\bsex\b|hospital|outcome", r"number"],
)
edited(
    "schema-broken-by-edit",
    "A quote lost while editing.",
    r'(?m)^(?!\s*#)([^#\n]*)"number"',
    r'\1"number',
    "nonzero",
    [r"data\.schema\.toml", r"line \d+|:\d+"],
)
case(
    "schema-column-gone",
    "The schema was made for last year's table; this year's has no bp.",
    {"old.csv": text(rows()), "data.csv": text(without(rows(seed=4), "bp")), "run.toml": WITH},
    [["look", "old.csv", *LOOK[2:], "--out", "data.schema.toml"], RUN],
    "nonzero",
    [w("bp"), r"schema|data\.csv"],
)
case(
    "schema-column-new",
    "This year's table has a column more (lactate) that the schema does not name: used or not?",
    {"old.csv": text(rows()), "data.csv": text(add(rows(seed=4), "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}")), "run.toml": WITH},
    [["look", "old.csv", *LOOK[2:], "--out", "data.schema.toml"], RUN],
    "any",
    [w("lactate")],
)
described(
    "schema-not-toml",
    "The schema is prose.",
    WITH,
    "nonzero",
    [r"data\.schema\.toml", r"toml|line 1\b|:1\b"],
    files={"data.schema.toml": "age is a number\nsex: category\n"},
)
described(
    "schema-not-there",
    "The schema is named and was never written.",
    WITH,
    "nonzero",
    [r"data\.schema\.toml", r"no such|not (there|found)|does not exist|no file|missing|rookery look"],
)
case(
    "schema-overwritten-by-second-look",
    "An hour of editing, then look again with the same --out: the edits are gone.",
    {"data.csv": text(rows())},
    [SCHEMA, SCHEMA],
    "any",
    [near(r"data\.schema\.toml|schema", r"exists?|overwr|kept|keep|already|replace|--force|another --out|not written")],
    edits=[{"after": 1, "file": "data.schema.toml", "find": r"\Z", "replace": "\n# checked by Anna, 3 May\n"}],
)

# ================================================================================================================ predict, export

predicted(
    "predict-missing-column",
    "The new table has no bp: a model that fills it with the mean, unasked, for all.",
    text(without(new_rows(), "bp")),
    "nonzero",
    [w("bp"), r"new\.csv|missing|no column|lacks|needs"],
)
predicted(
    "predict-unseen-category",
    "A sex 'X' that training never saw.",
    text(put(new_rows(), 17, sex="X")),
    "any",
    [near(w("sex"), r"(?<!\w)X(?!\w)|unseen|not seen|never|new|unknown"), line(17) + r"|\b(1|one) (row|cell)"],
)
predicted(
    "predict-text-in-number",
    "'not measured' in bp.",
    text(put(new_rows(), 18, bp="not measured")),
    "any",
    [near(w("bp"), "not measured|number"), line(18)],
)
predicted(
    "predict-number-missing",
    "Four empty cells in age, which was complete in training: filled with what?",
    text(change(new_rows(), "age", lambda i, row: "" if i % 8 == 3 else row["age"])),
    "any",
    [near(w("age"), MISSING + "|fill")],
)
predicted("predict-empty-file", "Zero bytes.", "", "nonzero", [r"new\.csv", "empty|no (rows|lines|header|content)|nothing"])
predicted(
    "predict-header-only", "A header without rows.", ",".join(COLUMNS[:-1]) + "\n", "any", [r"no rows|(?<!\d)0 rows|header|nothing|empty"]
)
predicted(
    "predict-label-present",
    "The outcome is still in the table: it must not be used, and it must be said so (or scored against).",
    text(rows(30, seed=1)),
    "zero",
    [near(w("outcome") + "|label", LEFT + r"|not needed|score|against|accuracy|AUC|not read|present")],
)
predicted(
    "predict-other-delimiter",
    "Trained on commas, new rows with semicolons.",
    text(new_rows(), sep=";"),
    "zero",
    [r"\b30\b|semicolon|out\.csv"],
)
predicted(
    "predict-decimal-commas",
    "Trained on 6.4, new rows say 6,4 in a semicolon file: 64, or missing.",
    text(add(new_rows(), "lactate", lambda i, row: f"{1 + i % 31 / 10:.1f}".replace(".", ",")), sep=";"),
    "any",
    [r"comma|lactate"],
    content=text(add(rows(), "lactate", lambda i, row: f"{1 + i % 37 / 10:.1f}")),
)
predicted(
    "predict-other-units",
    "Trained on glucose in mg/dl, new rows in mmol/l: everyone looks hypoglycaemic, and no cell is odd.",
    text(add(new_rows(), "glucose", lambda i, row: round((90 + i * 37 % 60) / 18, 1))),
    "any",
    [near(w("glucose"), r"range|shift|outside|below|differ|unlike|unit|training|lower|far")],
    content=text(add(rows(), "glucose", lambda i, row: 90 + i * 37 % 60)),
)
predicted(
    "predict-extra-column",
    "A column that training never saw.",
    text(add(new_rows(), "ward", lambda i, row: f"W{i % 4}")),
    "zero",
    [near(w("ward"), LEFT + "|not (in|known|seen)|unknown|extra|new")],
)
predicted(
    "predict-columns-other-case",
    "Age and BP instead of age and bp.",
    text(rename(new_rows(), age="Age", bp="BP")),
    "any",
    [r"(?-i:\bage\b)", r"(?-i:\bAge\b)"],
)
predicted(
    "predict-without-site",
    "New rows of a hospital that is not in the federation, without a site column: it is no input.",
    text(without(new_rows(), "hospital")),
    "zero",
    [r"\b30\b|out\.csv"],
)
predicted(
    "predict-new-site",
    "Rows of a hospital that was not in training.",
    text(change(new_rows(), "hospital", lambda i, row: "overseas")),
    "any",
    [r"overseas|\b30\b|out\.csv"],
)
predicted(
    "predict-over-its-input",
    "-o new.csv: the table itself would be overwritten.",
    text(new_rows()),
    "nonzero",
    [r"new\.csv", r"overwr|same|itself|exists?|input|replace|another"],
    argv=["predict", BUNDLE, "new.csv", "-o", "new.csv"],
)
predicted(
    "predict-output-exists",
    "out.csv holds yesterday's predictions.",
    text(new_rows()),
    "any",
    [r"out\.csv", r"exists?|overwr|replac|already"],
    files={"out.csv": "patient,probability,decision\nP1,0.5,no\n"},
)
predicted(
    "predict-output-folder-missing",
    "-o results/2024/out.csv where there is no such folder.",
    text(new_rows()),
    "any",
    [r"results"],
    argv=["predict", BUNDLE, "new.csv", "-o", "results/2024/out.csv"],
)
predicted(
    "predict-run-folder",
    "The run's folder instead of its bundle/.",
    text(new_rows()),
    "any",
    ["bundle|out\\.csv"],
    argv=["predict", "runs/a", "new.csv", "-o", "out.csv"],
)
case(
    "predict-no-bundle",
    "A folder that is no bundle.",
    {"results/readme.txt": "nothing here\n", "new.csv": text(new_rows())},
    [["predict", "results", "new.csv", "-o", "out.csv"]],
    "nonzero",
    ["results", "bundle"],
)
case(
    "predict-bundle-not-there",
    "A folder that does not exist.",
    {"new.csv": text(new_rows())},
    [["predict", "runs/z/bundle", "new.csv", "-o", "out.csv"]],
    "nonzero",
    [r"runs/z", r"no such|not (there|found)|does not exist|no (folder|bundle)|missing"],
)
predicted(
    "predict-arguments-swapped",
    "The table first, the bundle second.",
    text(new_rows()),
    "nonzero",
    [r"new\.csv", "bundle"],
    argv=["predict", "new.csv", BUNDLE, "-o", "out.csv"],
)
predicted(
    "predict-title-line",
    "A title above the header of the new table.",
    "New patients, May\n" + text(new_rows()),
    "any",
    [r"header|title|above|skip|line [12]\b|first line|no column|missing"],
)

case(
    "export-unknown-format",
    "--to tensorflow.",
    {"data.csv": text(rows()), "run.toml": toml()},
    [RUN, ["export", BUNDLE, "--to", "tensorflow", "-o", "model"]],
    "nonzero",
    ["tensorflow", "onnx", "torch"],
)
case(
    "export-no-format",
    "--to forgotten.",
    {"data.csv": text(rows()), "run.toml": toml()},
    [RUN, ["export", BUNDLE, "-o", "model.onnx"]],
    "any",
    ["--to|onnx"],
)
case(
    "export-no-bundle",
    "A folder that is no bundle.",
    {"results/readme.txt": "nothing here\n"},
    [["export", "results", "--to", "onnx", "-o", "model.onnx"]],
    "nonzero",
    ["results", "bundle"],
)
case(
    "export-onto-a-folder",
    "-o names a folder that exists.",
    {"data.csv": text(rows()), "run.toml": toml(), "out/readme.txt": "mine\n"},
    [RUN, ["export", BUNDLE, "--to", "onnx", "-o", "out"]],
    "any",
    [r"\bout\b", r"folder|directory|onnx"],
)

# ============================================================================================================ descriptions, options

described("toml-unknown-key", "lable for label.", toml(label=None, data='lable = "outcome"\n'), "nonzero", ["lable", w("label")])
described(
    "toml-unknown-key-algorithm",
    "local_step for local_steps: ignored, the default would be used.",
    toml(algorithm="local_step = 5\n"),
    "nonzero",
    [w("local_step"), w("local_steps")],
)
described("toml-wrong-type", 'rounds = "two".', toml(rounds='"two"'), "nonzero", ["rounds", r"two|number|integer|whole|text|str"])
described("toml-number-as-string", 'lr = "0.1" in quotes.', toml(lr='"0.1"'), "any", [r"\blr\b|bundle|round"])
described("toml-hidden-not-a-list", "hidden = 8.", toml(hidden="8"), "any", [r"hidden|bundle|round"])
described("toml-decimal-comma", "lr = 0,1.", toml(lr="0,1"), "nonzero", [r"run\.toml", r"line 13\b|:13\b|lr"])
described("toml-unknown-section", "[algoritm].", toml().replace("[algorithm]", "[algoritm]"), "nonzero", ["algoritm", w("algorithm")])
described("toml-unknown-algorithm", "FedAverage.", toml(name='"FedAverage"'), "nonzero", ["FedAverage", w("FedAvg")])
described("toml-unknown-model", "mpl for mlp.", toml().replace('"mlp"', '"mpl"'), "nonzero", [w("mpl"), w("mlp")])
described("toml-no-label", "No label at all.", toml(label=None), "nonzero", [w("label")])
described("toml-table-not-there", "The table is named wrongly.", toml(table='"dta.csv"'), "nonzero", [r"dta\.csv"])
described(
    "toml-windows-path",
    "A Windows path in double quotes: \\U begins an escape.",
    toml(table='"C:\\Users\\anna\\data.csv"'),
    "nonzero",
    [r"run\.toml", r"line 2\b|:2\b", r"backslash|escape|\\|quote|slash"],
)
described("toml-negative-lr", "lr = -0.1: uphill.", toml(lr="-0.1"), "nonzero", [r"\blr\b", r"[-−]0\.1|positive|greater|above|negative"])
described(
    "toml-zero-rounds",
    "rounds = 0: an untrained model that looks like one.",
    toml(rounds="0"),
    "any",
    [near("rounds", r"(?<!\d)0(?!\d)|zero|at least|untrained|no training|positive")],
)
described(
    "toml-label-among-inputs",
    "The site is the label in the file.",
    toml(site='"outcome"'),
    "nonzero",
    [w("outcome"), near("label", "site")],
)
described("toml-not-there", "run.tml for run.toml.", toml(), "nonzero", [r"run\.tml"], argv=["run", "run.tml", "--out", "runs/a"])
described(
    "run-on-the-table",
    "rookery run data.csv: the table in place of the description.",
    toml(),
    "nonzero",
    [r"data\.csv", r"toml|description"],
    argv=["run", "data.csv", "--out", "runs/a"],
)
described(
    "set-without-equals",
    "--set algorithm.lr 0.3.",
    toml(),
    "nonzero",
    [r"--set|algorithm\.lr|unexpected extra argument", r"=|0\.3"],
    argv=["run", "run.toml", "--set", "algorithm.lr", "0.3", "--out", "runs/a"],
)
described(
    "set-only-key",
    "--set algorithm.lr.",
    toml(),
    "nonzero",
    [r"algorithm\.lr", "="],
    argv=["run", "run.toml", "--set", "algorithm.lr", "--out", "runs/a"],
)
described(
    "set-unknown-key",
    "--set algorithm.learning_rate=0.3.",
    toml(),
    "nonzero",
    ["learning_rate", r"\blr\b"],
    argv=["run", "run.toml", "--set", "algorithm.learning_rate=0.3", "--out", "runs/a"],
)
described(
    "set-without-section",
    "--set lr=0.3.",
    toml(),
    "nonzero",
    [r"\blr\b", r"section|algorithm\.lr"],
    argv=["run", "run.toml", "--set", "lr=0.3", "--out", "runs/a"],
)
case(
    "run-folder-exists",
    "The same --out twice: the first run would be overwritten, or two runs mixed.",
    {"data.csv": text(rows()), "run.toml": toml()},
    [RUN, RUN],
    "nonzero",
    [r"runs/a", r"exists?|already|--resume|another|overwr|holds"],
)
described(
    "run-folder-is-not-a-run",
    "--out names a folder with other people's files.",
    toml(),
    "any",
    [r"mine|exists?|already|bundle|not empty"],
    files={"mine/thesis.txt": "four years of work\n"},
    argv=["run", "run.toml", "--out", "mine"],
)
described(
    "batch-larger-than-site",
    "A site of five rows, and batches of 16.",
    toml(),
    "any",
    [r"bundle|round|batch"],
    [r"\bloss\b[^\n]{0,20}\bnan\b"],
    content=text(rows()[:115] + [{**row, "hospital": "east"} for row in rows()[115:]]),
)
look(
    "unknown-option",
    "--target instead of --label.",
    text(rows()),
    "nonzero",
    ["no such option.{0,10}--target"],
    argv=["look", "data.csv", "--target", "outcome"],
)


if __name__ == "__main__":
    print(len(CASES), "cases")
