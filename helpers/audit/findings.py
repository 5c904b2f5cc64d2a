"""What an audit found about a notebook: its runs, read into one plain dictionary with an entry for each claim."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.audit import doubts, outcomes
from helpers.audit.roles import NULLS_OF, Part, Role
from helpers.batch.collect import Run


@dataclass(frozen=True)
class Played:
    """A run in its role; `run` is None where the sweep ended before its turn."""

    role: Role
    run: Run | None

    @property
    def status(self) -> str:
        """How the run ended."""
        return self.run.status if self.run else "never ran"

    def row(self, claim: str) -> dict[str, Any] | None:
        """The claim's entry in the ledger of the run, if it is done."""
        rows = {row["id"]: row for row in self.run.claims} if self.run else {}
        return rows.get(claim)


def findings(
    slug: str,
    model: str,
    played: list[Played],
    choices: Iterable[str],
    own: Mapping[str, Mapping[str, dict[str, Any] | None]] | None = None,
) -> dict[str, Any]:
    """The audit's record of a notebook, as its JSON has it.

    Args:
        slug: the paper, or the notebook's name.
        model: the model that was audited, as outputs show it.
        played: the runs, the default first.
        choices: names of the parameters that the specification curve varies.
        own: claim -> null -> its entry, for the nulls that the notebook measures itself.
    """
    default = played[0]
    undone = [one for one in played if one.status != "done"]
    return {
        "paper": slug,
        "model": model,
        "fingerprint": default.run.id if default.run else None,
        "claims": [
            _claim(row, played, list(choices), (own or {}).get(row["id"], {}))
            for row in (default.run.claims if default.run else [])
        ],
        "runs": {
            "planned": len({one.run.id if one.run else one.role.label for one in played}),
            "not_done": [
                {"part": one.role.part, "label": one.role.label, "status": one.status, "failure": _failure(one.run)}
                for one in undone
            ],
        },
    }


def named(record: dict[str, Any]) -> list[str]:
    """What has to be said of an audit by name: claims that a null passes, doubts, a default run that is not done."""
    found = [
        f"{record['paper']}: the default run is {one['status']}: {one['failure'] or 'it left no ledger'}"
        for one in record["runs"]["not_done"]
        if one["part"] == "default"
    ]
    for claim in record["claims"]:
        name = f"{record['paper']} {claim['id']}"
        if passing := [null_name(null) for null in claim["nulls"] if null["outcome"] == "passed"]:
            verdict = "" if claim["positive"] else f" ({claim['verdict']} on {record['model']})"
            found.append(f"{name} is passed by a null ({', '.join(passing)}){verdict}: {claim['statement']}")
        found += [f"{name}: {doubt}." for doubt in claim["doubts"]]
    return found


def null_name(null: dict[str, Any]) -> str:
    """A null's name: a model's with its colon, one of the notebook's own in words."""
    return null["null"].replace("_", " ") if null.get("own") else f"{null['null']}:"


def _claim(
    row: dict[str, Any], played: list[Played], choices: list[str], own: Mapping[str, dict[str, Any] | None]
) -> dict[str, Any]:
    id = row["id"]

    def of(*parts: Part) -> list[Played]:
        return [one for one in played if one.role.part in parts]

    nulls = {one.role.label: one for one in of("null")}
    nulls = {name: nulls[name] for name in NULLS_OF[row["kind"]] if name in nulls}
    found = {name: outcomes.of_null(one.row(id)) for name, one in nulls.items()}
    found_own = {name: outcomes.of_null(entry) for name, entry in own.items()}
    together, decided_by = outcomes.together(found_own | found)
    positive = outcomes.positive(row)
    around = [one.row(id) for one in of("default", "seed", "redraw")]
    # a null that passes beats the controls by definition, and is named for itself
    unpassed = {name: other for name, one in nulls.items() if found[name] != "passed" and (other := one.row(id))}
    return {
        "id": id,
        "kind": row["kind"],
        "statement": row["statement"],
        "statistic": row["statistic"],
        "test": row["test"],
        "region": row["region"],
        **_measured(row),
        "positive": positive,
        "null": {"outcome": together, "decided_by": decided_by} if found_own | found else None,
        "nulls": [
            {"null": name, "own": True, "outcome": found_own[name], **_own_result(entry)} for name, entry in own.items()
        ]
        + [
            {"null": name, "outcome": found[name], **_result(nulls[name], id), "gate": _gate(nulls[name], id)}
            for name in nulls
        ],
        "seed_stability": _stability(row, of("seed"), id),
        "redraw_stability": _stability(row, of("redraw"), id),
        "seeds": [{"label": one.role.label, **_result(one, id)} for one in of("seed")],
        "redraws": [{"label": one.role.label, **_result(one, id)} for one in of("redraw")],
        "jitter": [{"label": one.role.label, **_result(one, id)} for one in of("jitter")],
        "specifications": [
            {"choices": {name: one.role.given[name] for name in choices}, **_result(one, id)} for one in of("choice")
        ],
        "doubts": [*doubts.idle_controls(row, unpassed), *doubts.scatter([one for one in around if one])],
    }


def _measured(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("verdict", "value", "interval", "reason")} | {"gate": row.get("gate")}


def _result(one: Played, claim: str) -> dict[str, Any]:
    """What a run found for a claim; verdict None where it is not done."""
    row = one.row(claim)
    if row is None:
        return {"status": one.status, "verdict": None, "value": None, "interval": None, "reason": _failure(one.run)}
    return {"status": one.status} | {name: row[name] for name in ("verdict", "value", "interval", "reason")}


def _own_result(entry: dict[str, Any] | None) -> dict[str, Any]:
    if entry is None:
        reason = "the default run left no rows of it"
        return {"status": "never ran", "verdict": None, "value": None, "interval": None, "reason": reason, "gate": None}
    return {"status": "done"} | _measured(entry)


def _gate(one: Played, claim: str) -> str | None:
    row = one.row(claim)
    return row.get("gate") if row else None


def _stability(default: dict[str, Any], others: list[Played], claim: str) -> float | None:
    """The share of the finished runs whose verdict is the default run's; None where there are none."""
    verdicts = [row["verdict"] for one in others if (row := one.row(claim))]
    return sum(verdict == default["verdict"] for verdict in verdicts) / len(verdicts) if verdicts else None


def _failure(run: Run | None) -> str | None:
    """Why a run is not done, on one line."""
    failure = run.record.get("failure") if run else None
    return " ".join(str(failure).split()) if failure else None
