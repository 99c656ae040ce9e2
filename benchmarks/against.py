"""Two versions of the package measured in alternation, so that a noisy machine slows both.

Each version runs in a process of its own, with its own `benchmarks/speed.py`: that must have `problem`, `stepper` and
`median_ms` as this one has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5  # in which versions take turns

WORKER = """
import json, sys
from benchmarks.speed import median_ms, problem, stepper
from sparsefactor.engine.threads import single_blas_thread
for line in sys.stdin:
    ask = json.loads(line)
    with single_blas_thread():
        if "job" in ask:
            method, *shape = ask["job"]
            made = problem(*shape)
            answer = None
        elif "threads" in ask:
            sweep = stepper(method, *made, ask["threads"])
            answer = None
        else:
            answer = median_ms(sweep, ask["seconds"])
    print(json.dumps(answer), file=sys.__stdout__, flush=True)
"""


@contextmanager
def checkout(reference: str) -> Iterator[Path]:
    """A temporary worktree at a commit, a branch or a tag."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before"
        _git("worktree", "add", "--detach", str(path), reference)
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _git(*words: str) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}; name a commit, a branch or a tag")


class Version:
    """A process that measures one version of the package."""

    def __init__(self, root: Path) -> None:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root / "src", root)))}
        command = [sys.executable, "-W", "ignore", "-c", WORKER]
        self.process = subprocess.Popen(
            command, cwd=root, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a version under measurement has ended with status {self.process.wait()}; see above")
        return json.loads(answer)

    def __enter__(self) -> Version:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__(None, None, None)  # closes its pipes, at which it ends, and waits for it


@contextmanager
def versions(reference: str | None) -> Iterator[list[Version]]:
    """This one, and before it, where one is named, the one it is measured against."""
    with ExitStack() as stack:
        roots = [ROOT] if reference is None else [stack.enter_context(checkout(reference)), ROOT]
        yield [stack.enter_context(Version(root)) for root in roots]


def measured(running: Sequence[Version], job: Sequence[Any], threads: int | None, seconds: float) -> list[float]:
    """Milliseconds of a sweep of each version. job: method, features, samples, factors, share missing, type."""
    for version in running:
        version.ask(job=list(job))
        version.ask(threads=threads)
    times = [[version.ask(seconds=seconds / ROUNDS) for version in running] for _ in range(ROUNDS)]
    return [float(ms) for ms in np.median(times, axis=0)]
