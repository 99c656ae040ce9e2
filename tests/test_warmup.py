"""`sparsefactor warmup` compiles what default fits and runs need."""

import json
import os
import subprocess
import sys

import pytest

FITS = """
import json, warnings
from numba.core import event
import sparsefactor as sf

warnings.simplefilter("ignore")
compiled = []

class Listener(event.Listener):
    def on_start(self, compilation):
        function = compilation.data["dispatcher"].py_func
        if function.__module__.startswith("sparsefactor."):
            compiled.append(function.__name__)

    def on_end(self, compilation):
        pass

event.register("numba:compile", Listener())
for load in (sf.datasets.load_abilities, sf.datasets.load_process):
    sf.fit_vi(load(), n_factors=5, scale=True)
    sf.sample(load(), n_factors=5, scale=True, n_chains=2, n_warmup=50, n_draws=50)
print(json.dumps(compiled))
"""


def compiled_by_fits(env: dict[str, str]) -> list[str]:
    done = subprocess.run([sys.executable, "-c", FITS], capture_output=True, text=True, env=env, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_after_warmup_nothing_is_compiled(tmp_path) -> None:
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "sparsefactor", "warmup", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert json.loads(done.stdout)["seconds"] > 0
    assert "sample, complete table of 20 features: " in done.stderr
    assert compiled_by_fits(env) == []
