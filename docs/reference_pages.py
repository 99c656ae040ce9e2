"""Corrects the parameters on the reference pages when the documentation is built.

An extension of griffe (see mkdocs.yml). Where a docstring describes several parameters in one entry, each gets its own
default from the signature. Parameters that only the package sets are left out.
"""

from __future__ import annotations

from typing import Any

import griffe

INTERNAL = {"Prior": {"settled", "parallel_analysis"}}  # parameters that only the package sets


class ReferencePages(griffe.Extension):
    """Corrects the docstrings of a package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        visit(pkg)


def visit(described: Any) -> None:
    for member in described.members.values():
        if not member.is_alias:
            if member.is_class:
                correct(member, INTERNAL.get(member.name, set()))
            elif member.is_function:
                correct(member, set())
            visit(member)


def correct(described: griffe.Class | griffe.Function, hidden: set[str]) -> None:
    defaults = {}
    for p in described.parameters:
        constant = described.module.members.get(str(p.default))
        known = constant is not None and not constant.is_alias and constant.is_attribute
        defaults[p.name] = constant.value if known else p.default
    for section in described.docstring.parsed if described.docstring else []:
        if section.kind is griffe.DocstringSectionKind.parameters:
            section.value[:] = [p for p in section.value if p.name not in hidden]
            for parameter in section.value:
                if parameter.name in defaults:
                    parameter.value = defaults[parameter.name]
