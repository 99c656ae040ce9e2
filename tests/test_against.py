"""Two versions measured in alternation: each by its own text, and nothing is left behind."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from benchmarks import against

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

SPEED = """
def problem(G, N):
    return [G, N]

def stepper(method, G, N, threads):
    assert method == "CAVI"
    return G * N * threads

def median_ms(sweep, seconds):
    return {factor} * sweep
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits, the later of which is twice as fast."""

    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        done = subprocess.run(["git", *names, "-C", str(tmp_path), *words], check=True, capture_output=True, text=True)
        return done.stdout

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/__init__.py").touch()
    git("init", "-q")
    for factor in (2.0, 1.0):
        (tmp_path / "benchmarks/speed.py").write_text(SPEED.format(factor=factor))
        git("add", "-A")
        git("commit", "-q", "-m", str(factor))
    monkeypatch.setattr(against, "ROOT", tmp_path)
    return git


def test_both_versions_are_measured(repository):
    with against.versions("HEAD~1") as running:
        assert len(repository("worktree", "list").splitlines()) == 2
        assert against.measured(running, ("CAVI", 3, 5), 2, 0.1) == [60.0, 30.0]
    assert len(repository("worktree", "list").splitlines()) == 1
    with against.versions(None) as running:
        assert against.measured(running, ("CAVI", 3, 5), 1, 0.1) == [15.0]


def test_what_cannot_be_measured_says_so(repository):
    with pytest.raises(SystemExit, match="name a commit, a branch or a tag"), against.versions("nowhere"):
        pass
    with against.versions(None) as running, pytest.raises(SystemExit, match="has ended with status 1"):
        against.measured(running, ("Gibbs", 3, 5), 1, 0.1)
