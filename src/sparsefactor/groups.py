"""Known groups of features (views): labels given by position or by name, checked, and matched to the features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .names import is_missing, shown

Groups = NDArray[np.str_] | dict[str, str] | None


class PartOfGroups:
    """The groups of some of the features, numbered as among all features."""

    def __init__(self, names: NDArray[np.str_], index: NDArray[np.int64], sizes: NDArray[np.float64]) -> None:
        """names: (V,) of all groups; index: (n,) which of them each of these features is in; sizes: (V,) in all."""
        self.names, self.index, self.sizes = names, index, sizes

    def __len__(self) -> int:
        return len(self.index)


def checked_groups(groups: Any) -> Groups:
    """Labels (n_features,) as strings, or by feature name as a dict; anything else is refused."""
    if groups is None or isinstance(groups, PartOfGroups):
        return groups  # type: ignore[return-value]
    if hasattr(groups, "index") and hasattr(groups, "items") and not _is_numbered(groups.index):
        groups = dict(groups.items())
    if isinstance(groups, dict):
        named = {str(name): _label(label, f"feature {shown(name)!r}") for name, label in groups.items()}
        return named or _refuse(groups)
    try:
        labels = np.asarray(groups, dtype=object)
    except ValueError:
        labels = np.empty((0, 0), dtype=object)
    if labels.ndim != 1 or not labels.size:
        return _refuse(groups)
    array = np.array([_label(label, f"feature {i}") for i, label in enumerate(labels)], dtype=str)
    array.flags.writeable = False
    return array


def matched(groups: Groups, feature_names: NDArray[Any]) -> NDArray[np.str_] | None:
    """(n_features,) the label of each feature; groups that do not cover the features are refused."""
    if groups is None:
        return None
    if not isinstance(groups, dict):
        if len(groups) != len(feature_names):
            raise ValueError(
                f"groups must have one label per feature; got {len(groups)} labels for {len(feature_names)} features; "
                "select the features of X, or pass labels by feature name"
            )
        return groups
    names = [str(name) for name in feature_names]
    without = [name for name in names if name not in groups]
    if without:
        raise ValueError(
            f"groups must cover every feature of X; {len(without)} of {len(names)} have none, the first "
            f"{shown(without[0])!r}; add their labels, or drop these features"
        )
    return np.array([groups[name] for name in names], dtype=str)


def distinct_labels(groups: Any) -> set[str]:
    """The groups there are, whichever way they are given."""
    checked: Any = checked_groups(groups)
    if checked is None:
        return set()
    return set(
        map(
            str,
            checked.names
            if isinstance(checked, PartOfGroups)
            else checked.values()
            if isinstance(checked, dict)
            else checked,
        )
    )


def numbered(labels: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """The names of the groups in the order in which they appear, and (n_features,) which of them each feature is in."""
    if isinstance(labels, PartOfGroups):
        return labels.names, labels.index
    names, first, index = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return names[order], place[index.reshape(-1)]


def _label(label: Any, whose: str) -> str:
    if is_missing(label):
        raise ValueError(f"every feature must have a group; {whose} has none ({label!r}); label it, or drop it")
    return str(label)


def _is_numbered(index: Any) -> bool:
    return callable(index) or list(index) == list(range(len(index)))


def _refuse(groups: Any) -> Groups:
    raise ValueError(
        f"groups must be one label per feature, or labels by feature name; got {shown(repr(groups))}; pass e.g. "
        "['rna', 'rna', 'protein'] or {'gene 1': 'rna', ...}"
    )
