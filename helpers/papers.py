"""The catalogue: every paper and, where its notebook stands, every claim, read and checked from data/papers.yaml."""

import copy
import math
import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

import helpers
from helpers.errors import HookbookError
from helpers.strict_yaml import read_yaml

ROOT = Path(helpers.__file__).parent.parent
CATALOGUE = ROOT / "data" / "papers.yaml"

Theme = Literal[
    "circuits",
    "representations",
    "features",
    "steering",
    "in-context-learning",
    "training-dynamics",
    "data-attribution",
    "prompts-and-behaviour",
    "vision",
    "multimodal",
    "generative",
    "graphs",
    "time-series-and-dynamics",
    "reinforcement-learning",
    "tabular-and-theory",
    "decoding-and-adaptation",
]
THEMES: tuple[str, ...] = get_args(Theme)  # in the order of the book's chapters
Kind = Literal["identity", "method", "behaviour", "decodable", "causal", "localised", "specific", "dynamics"]
CHECKED_KINDS = ("identity", "method")  # hold on any network: they need no control and never count as replications
Preset = Literal["quick", "evidence", "paper"]
PRESETS: tuple[str, ...] = get_args(Preset)

_FORMS = {  # pattern -> what an error calls it
    r"\S": "some text",
    r"^[a-z0-9]+(-[a-z0-9]+)*$": "lower-case words joined by hyphens, such as sentiment-direction",
    r"^\d{4}\.\d{4,5}$": 'a number in quotes, such as "2310.15154"',
    r"^[\w.-]+/[\w.-]+$": "owner/repository",
    r"^C[1-9]\d?[a-z]?$": "an id such as C1 or C1a",
}
_TEXT, _SLUG, _ARXIV, _CODE, _CLAIM_ID = _FORMS
Text = Annotated[str, Field(pattern=_TEXT)]
# YAML has lists where Python has tuples, so this one type may be converted although the rest is strict
Pair = Annotated[tuple[float, float], Field(strict=False)]


class _Entry(BaseModel):
    """Unknown fields, converted types, infinities and later changes are all refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)


def _ordered(pair: Pair | None) -> Pair | None:
    if pair is not None and not pair[0] < pair[1]:
        raise ValueError(f"the first number must be below the second, got {list(pair)}")
    return pair


def _number(value: float) -> str:
    """0.7 -> '0.70', 5.0 -> '5', 0.0001 -> '0.0001': two decimals where they are exact and not idle."""
    return f"{value:.2f}" if round(value, 2) == value != round(value) else f"{value:g}"


class Test(_Entry):
    """The region in which a claim's statistic must lie: `at_least`, `at_most` or `between` two numbers."""

    __test__: ClassVar[bool] = False  # the name is the domain's; pytest shall not collect it

    at_least: float | None = None
    at_most: float | None = None
    between: Pair | None = None

    _between_is_ordered = field_validator("between")(_ordered)

    @model_validator(mode="after")
    def _exactly_one(self) -> "Test":
        if sum(bound is not None for bound in (self.at_least, self.at_most, self.between)) != 1:
            raise ValueError("give exactly one of at_least, at_most and between")
        return self

    @property
    def region(self) -> tuple[float, float]:
        """Both ends of the region, in the statistic's own unit; an open end is infinite."""
        if self.between is not None:
            return self.between
        if self.at_least is not None:
            return self.at_least, math.inf
        return -math.inf, self.at_most

    def describe(self) -> str:
        """The region as people write it: `≥ 0.70`, `≤ 0.05`, `in [-0.10, 0.10]`."""
        if self.between is not None:
            return f"in [{_number(self.between[0])}, {_number(self.between[1])}]"
        return f"≥ {_number(self.at_least)}" if self.at_least is not None else f"≤ {_number(self.at_most)}"


class PaperValue(_Entry):
    """What the paper reports: the number if it gives one, its words, its model, the place, and over what it holds."""

    value: float | None
    text: Text
    model: Text
    place: Text
    scope: Text


class Claim(_Entry):
    """One claim, stated before it is measured."""

    id: Annotated[str, Field(pattern=_CLAIM_ID)]
    kind: Kind
    statement: Text
    statistic: Text
    unit: Text | list[Text]  # what is independent and resampled; two names are crossed units
    bounds: Pair | None = None  # the range of a bounded statistic, such as [0, 1] for an accuracy
    test: Test
    smallest_effect: Text  # why the threshold is the smallest effect of interest
    controls: dict[Text, Text] = {}  # name -> what it is
    direction: Literal["above", "below"] = "above"  # on which side of each control the value must lie
    paper: PaperValue
    threshold_from: Literal["paper", "theory", "pilot"]
    seen_before: bool  # whether the statistic had been seen before the threshold was set
    n_min: Annotated[int, Field(ge=1)] = 6  # with fewer units the claim is not tested
    tolerance: Annotated[float, Field(ge=0)]  # by how much a rerun on another machine may differ

    _bounds_are_ordered = field_validator("bounds")(_ordered)

    @property
    def units(self) -> list[str]:
        """The names of the independent units: one, or two that are crossed."""
        return [self.unit] if isinstance(self.unit, str) else list(self.unit)

    @field_validator("unit")
    @classmethod
    def _one_or_two_units(cls, unit: str | list[str]) -> str | list[str]:
        if isinstance(unit, list) and (len(unit) not in (1, 2) or len(set(unit)) != len(unit)):
            raise ValueError("name one unit, or two different ones that are crossed")
        return unit

    @field_validator("test")
    @classmethod
    def _can_hold_and_fail(cls, test: Test, info: ValidationInfo) -> Test:
        low, high = test.region
        if info.data.get("kind") not in CHECKED_KINDS and 0 in (test.at_least, test.at_most):
            raise ValueError("a bare sign is no test: state the smallest effect of interest instead of 0")
        if bounds := info.data.get("bounds"):
            if high < bounds[0] or low > bounds[1]:
                raise ValueError(f"{test.describe()} lies outside the bounds {list(bounds)} and can never hold")
            if low <= bounds[0] and high >= bounds[1]:
                raise ValueError(f"{test.describe()} covers the bounds {list(bounds)} and can never fail")
        return test

    @field_validator("controls")
    @classmethod
    def _named_controls(cls, controls: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        kind, unit = info.data.get("kind"), info.data.get("unit", [])
        if kind and kind not in CHECKED_KINDS and not controls:
            raise ValueError(f"a {kind} claim must beat at least one control: name it and say what it is")
        units = [unit] if isinstance(unit, str) else unit
        if clash := {"value", "denominator", *(name.replace(" ", "_") for name in units)} & set(controls):
            raise ValueError(f"{min(clash)!r} already names a column of the claim's rows: call the control otherwise")
        return controls

    @field_validator("n_min")
    @classmethod
    def _enough_units(cls, n_min: int, info: ValidationInfo) -> int:
        if n_min < 6 and info.data.get("kind") != "identity":
            raise ValueError(f"at least 6 units are needed for an interval, got {n_min}")
        return n_min


class Minutes(_Entry):
    """Minutes to read the notebook, to run its quick preset, and to do the exercises."""

    read: Annotated[int, Field(gt=0)]
    run: Annotated[float, Field(gt=0)]
    exercise: Annotated[int, Field(gt=0)]


class Misconception(_Entry):
    """A mistaken belief that the notebook refutes, and the id of the cell that does so."""

    name: Text
    cell: Text


class Teaching(_Entry):
    """What a teacher wants to know before choosing a notebook."""

    idea: Text
    goals: Annotated[list[Text], Field(min_length=3, max_length=3)]
    prerequisites: list[Text]
    minutes: Minutes
    difficulty: Literal["introductory", "intermediate", "advanced"]
    tags: Annotated[list[Text], Field(min_length=1)]
    misconceptions: list[Misconception] = []


class Audit(_Entry):
    """What `hookbook audit` may vary beside seeds and nulls; each parameter with the values to try."""

    # claim -> those of its controls that are the claim itself, fitted or found on permuted data
    nulls: dict[Text, Annotated[list[Text], Field(min_length=1)]] = {}
    redraw: dict[Text, Annotated[list[JsonValue], Field(min_length=1)]] = {}  # other units; seeds if it names none
    choices: dict[Text, Annotated[list[JsonValue], Field(min_length=2)]] = {}  # of the specification curve
    sample: Annotated[int, Field(ge=1)] = 24  # specifications that are run, of all combinations of the choices


class Paper(_Entry):
    """A paper; `planned` until its notebook `stands`, and only then with claims and presets."""

    slug: Annotated[str, Field(pattern=_SLUG)]
    status: Literal["planned", "stands"]
    title: Text
    authors: list[Text]
    venue: Text
    arxiv: Annotated[str, Field(pattern=_ARXIV)] | None = None
    code: Annotated[str, Field(pattern=_CODE)] | None = None
    unsure: list[Literal["title", "authors", "venue", "arxiv", "code"]] = []  # fields that no public source confirms
    theme: Theme
    tier: Literal["A", "B", "C", "D"]
    model: list[Text] = []  # the paper's own models
    model_class: list[Text] = []  # beginnings of the names of models that count as of the paper's own class
    silent: list[Text] = []  # where the paper is silent or inconsistent
    not_claimed: list[Text] = []
    data: list[Text] = []  # paths from data/
    presets: dict[Preset, dict[str, JsonValue]] = {}
    teaching: Teaching | None = None
    claims: list[Claim] = []
    audit: Audit | None = None

    @property
    def notebook(self) -> Path:
        """Where the notebook is or will be."""
        return ROOT / "notebooks" / self.theme / f"{self.slug}.ipynb"

    @property
    def data_files(self) -> list[Path]:
        """The data files that the notebook reads, as absolute paths."""
        return [ROOT / "data" / name for name in self.data]

    @field_validator("authors", "model", "not_claimed", "presets", "teaching", "claims", "audit")
    @classmethod
    def _as_the_status_demands(cls, value: Any, info: ValidationInfo) -> Any:
        status, field = info.data.get("status"), info.field_name
        if status == "stands" and not value and field != "audit":
            raise ValueError("a paper that stands must have it")
        if status == "planned" and field in ("claims", "presets", "audit") and value:
            raise ValueError("a planned paper has none: set status to stands")
        if status == "stands" and field == "presets" and (missing := [name for name in PRESETS if name not in value]):
            raise ValueError(f"preset {missing[0]!r} is missing: quick, evidence and paper are needed")
        return value

    @field_validator("claims")
    @classmethod
    def _ids_are_unique(cls, claims: list[Claim]) -> list[Claim]:
        ids = [claim.id for claim in claims]
        if twice := [claim_id for claim_id in ids if ids.count(claim_id) > 1]:
            raise ValueError(f"the id {twice[0]} is used twice")
        return claims

    @field_validator("audit")
    @classmethod
    def _nulls_are_controls(cls, audit: Audit | None, info: ValidationInfo) -> Audit | None:
        controls = {claim.id: claim.controls for claim in info.data.get("claims", [])}
        for claim_id, names in (audit.nulls if audit else {}).items():
            if unknown := [name for name in names if name not in controls.get(claim_id, {})]:
                raise ValueError(f"nulls: {claim_id} has no control {unknown[0]!r}")
        return audit

    @field_validator("data")
    @classmethod
    def _paths_stay_under_data(cls, names: list[str]) -> list[str]:
        for name in names:
            parts = Path(name).parts
            if Path(name).is_absolute() or ".." in parts or "\\" in name or parts[:1] == ("data",):
                raise ValueError(f"{name!r} must be a path inside data/, written from there")
        return names


def catalogue(path: Path = CATALOGUE) -> dict[str, Paper]:
    """All papers by slug, in the order of the file, which is read anew only when it has changed.

    Raises:
        HookbookError: the file is missing, is not YAML, or an entry is wrong; names file, entry and field.
    """
    return dict(_read(*_version(path))[0])


def paper(slug: str, path: Path = CATALOGUE) -> Paper:
    """The paper of that slug.

    Raises:
        HookbookError: no such paper; the sentence names the nearest slugs.
    """
    papers = catalogue(path)
    if slug not in papers:
        near = [known for known in papers if slug and slug in known][:3]
        near = near or get_close_matches(slug, papers, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`hookbook list` shows them all."
        raise HookbookError(f"There is no paper {slug!r} in the catalogue: {hint}")
    return papers[slug]


def raw_entry(slug: str, path: Path = CATALOGUE) -> dict[str, Any]:
    """The entry of a paper as plain data, just as the file has it; what a fingerprint covers.

    Raises:
        HookbookError: no such paper, or the file is wrong.
    """
    paper(slug, path)
    return copy.deepcopy(_read(*_version(path))[1][slug])


def _version(path: Path) -> tuple[Path, int, int]:
    path = Path(path).resolve()
    try:
        stat = path.stat()
    except OSError as error:
        reason = f"{_shown(path)} cannot be read ({error.strerror})"
        raise HookbookError(f"{reason}: restore it from the repository.") from None
    return path, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _read(path: Path, mtime_ns: int, size: int) -> tuple[dict[str, Paper], dict[str, dict]]:
    entries = read_yaml(path, _shown(path))
    if not isinstance(entries, dict):
        raise HookbookError(f"{_shown(path)}: expected entries that start with a slug, as in `sentiment-direction:`.")
    return {slug: _validated(f"{_shown(path)}, {slug}", slug, entry) for slug, entry in entries.items()}, entries


def _validated(place: str, slug: Any, entry: Any) -> Paper:
    if not isinstance(entry, dict):
        raise HookbookError(f"{place}: expected fields such as `title:`, got {type(entry).__name__}.")
    if "slug" in entry:
        raise HookbookError(f"{place}, slug: the entry's key is its slug; remove the field.")
    try:
        return Paper.model_validate({"slug": slug, **entry})
    except ValidationError as error:
        first, *others = error.errors()
        more = f" ({len(others)} more in this entry)" if others else ""
        raise HookbookError(f"{place}, {_field(first['loc'])}: {_complaint(first)}{more}.") from None


def _field(location: tuple[str | int, ...]) -> str:
    """`claims.2.test`: without the members of a union that pydantic tried, which tell a reader nothing."""
    tried = re.compile(r"[\[\]()]|^(str|list|constrained-str)$")
    return ".".join(str(part) for part in location if not (isinstance(part, str) and tried.search(part)))


def _complaint(error: dict[str, Any]) -> str:
    if error["type"] in ("missing", "extra_forbidden"):
        return "is missing" if error["type"] == "missing" else "there is no such field"
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    got = repr(error["input"])
    got = got if len(got) <= 60 else f"{got[:57]}..."
    if error["type"] == "string_pattern_mismatch":
        return f"expected {_FORMS[error['ctx']['pattern']]}, got {got}"
    if error["type"] == "string_type":
        return f"expected text (put it in quotes), got {got}"
    return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {got}"


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
