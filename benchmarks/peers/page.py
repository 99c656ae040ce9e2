"""The tables on other packages in docs/results.md, from benchmarks/peers.json. Standard library only, so that tests can hold the page to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "peers.json", ROOT / "docs" / "results.md"
NONE = "-"
TITLES = {
    "wine": "wine",
    "breast_cancer": "breast cancer",
    "questionnaire": "questionnaire",
    "macro": "US economy",
    "gtex": "GTEx",
}


def methods(told: dict[str, Any]) -> list[str]:
    return list(told["first_call_seconds"])


def mean(rows: list[dict[str, Any]], name: str, form: str, **where: Any) -> str:
    values = [row[name] for row in rows if name in row and all(row[k] == v for k, v in where.items())]
    return format(fmean(values), form) if values else NONE


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def simulation(told: dict[str, Any], name: str, form: str) -> str:
    rows, snrs = told["simulation"], sorted({row["snr"] for row in told["simulation"]})
    lines = [[m, *(mean(rows, name, form, method=m, snr=snr) for snr in snrs)] for m in methods(told)]
    return table(["", *(f"snr {snr:g}" for snr in snrs)], [line for line in lines if set(line[1:]) != {NONE}])


def real(told: dict[str, Any], name: str, form: str) -> str:
    rows, names = told["real"], list(dict.fromkeys(row["table"] for row in told["real"]))
    sizes = {row["table"]: " x ".join(map(str, row["shape"])) for row in rows}
    lines = [[m, *(mean(rows, name, form, method=m, table=t) for t in names)] for m in methods(told)]
    head = ["", *(f"{TITLES[t]}, {sizes[t]}" for t in names)]
    return table(head, [line for line in lines if set(line[1:]) != {NONE}])


def where(told: dict[str, Any]) -> str:
    """On which machine, beside how much other work, and in one run or several; `note` says what those differ in."""
    m, versions = told["machine"], told["machine"]["versions"]
    peers = ", ".join(f"{name} {versions[name]}" for name in versions)
    quiet = m.get("load", m["cores"]) < 0.5 * m["cores"]
    runs = "one run of {} minutes" if told.get("whole") else "runs of {} minutes together"
    text = (
        f"Measured on {told['date']} on {m['cores']} cores of {m['processor']}, "
        f"{'with little else to do' if quiet else 'shared with other work'}, in "
        f"{runs.format(round(told['seconds'] / 60))}: Python {m['python']}, {peers}."
    )
    return text if "note" not in told else f"{text}\n\n{told['note']}"


def parts(told: dict[str, Any]) -> dict[str, str]:
    """Everything on the page that is measured, by the name of its place."""
    return {
        "where": where(told),
        "accuracy of Z": simulation(told, "z_accuracy", ".3f"),
        "error of loadings": simulation(told, "rrmse_loadings", ".3f"),
        "held-out error": real(told, "error", ".3f"),
        "seconds on the tables": real(told, "cpu_seconds", ".1f"),
    }


def filled(text: str, told: dict[str, Any]) -> str:
    """The page with what stands between `<!-- NAME -->` and `<!-- end -->` made anew; an unknown name is an error."""
    made = parts(told)
    return re.sub(
        r"(<!-- (?!end)(.+?) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def rewrite(results: Path) -> None:
    PAGE.write_text(filled(PAGE.read_text(), json.loads(results.read_text())))
    print(f"{PAGE.relative_to(ROOT)} holds the figures of {results.name}")
