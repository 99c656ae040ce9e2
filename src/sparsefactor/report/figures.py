"""Figures as parts of a page: drawn by `plot`, embedded as SVG, with a text alternative."""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

from .sections import Section


def figure(title: str, drawing: Any, alt: str, caption: str = "") -> Section:
    """drawing: a matplotlib Figure, or Axes of one. alt: what the picture shows, in words."""
    whole = getattr(drawing, "figure", None) or drawing
    buffer = io.BytesIO()
    import matplotlib

    # The same result gives the same page: no date, and ids that depend on nothing but what is drawn.
    with matplotlib.rc_context({"svg.hashsalt": "sparsefactor"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # names in any script: tables have what the font lacks
        whole.savefig(buffer, format="svg", metadata={"Date": None}, dpi=150)
    image = base64.b64encode(buffer.getvalue()).decode("ascii")
    width = round(96 * whole.get_figwidth())
    return {
        "kind": "figure",
        "title": title,
        "note": "",
        "image": image,
        "alt": alt,
        "caption": caption,
        "width": width,
    }
