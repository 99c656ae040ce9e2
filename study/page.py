"""A study's report: one self-contained HTML page of tables and figures."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } img { max-width: 100%; background: white; }
table { border-collapse: collapse; font-size: 0.85rem; } th, td { padding: 0.25rem 0.6rem; text-align: left; }
thead th { border-bottom: 1px solid; } tbody tr:nth-child(even) { background: #8882; }
.notice { border-left: 4px solid #b87a00; padding-left: 0.8rem; }
pre { overflow-x: auto; font-size: 0.8rem; } :root { color-scheme: light dark; }
"""


def table_section(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> str:
    table = pd.DataFrame(list(rows)).to_html(index=False, na_rep="", border=0, float_format=lambda v: f"{v:.4g}")
    return f'<h2>{html.escape(title)}</h2><p>{html.escape(note)}</p><div class="wide">{table}</div>'


def figure_section(title: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<h2>{html.escape(title)}</h2><img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'


def record_section(record: Mapping[str, Any]) -> str:
    return f"<h2>Run record</h2><pre>{html.escape(json.dumps(record, indent=2))}</pre>"


def write_page(
    out: Path, title: str, about: str, sections: Sequence[str], record: Mapping[str, Any], notice: str
) -> Path:
    """Write report.html and run.json; return the path of the report."""
    (out / "run.json").write_text(json.dumps(record, indent=2) + "\n")
    name = html.escape(f"Sparse factors: {title}")
    shown = f'<p class="notice">{html.escape(notice)}</p>' if notice else ""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
    body = f"<h1>{name}</h1><p>{html.escape(about)}</p>{shown}{''.join(sections)}"
    path = out / "report.html"
    path.write_text(f'<!doctype html><html lang="en">{head}<style>{STYLE}</style><body>{body}</body></html>\n')
    return path


def write_csv(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    pd.DataFrame(list(rows)).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
