"""A default run of `sample` on the paper's simulation, and its verdict.

python -m benchmarks.verdict [--seed 0]
"""

from __future__ import annotations

import argparse
import time

import sparsefactor as sf

PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sf.sample(sf.simulate_paper(seed=99).X, PRIOR, n_warmup=2, n_draws=2, progress=False)  # compile
    for snr in (1, 5, 25):
        sim = sf.simulate_paper(snr=snr, seed=options.seed)
        begin = time.perf_counter()
        mc = sf.sample(sim.X, PRIOR, progress=False)
        seconds = time.perf_counter() - begin
        print(f"snr {snr}: {seconds:.1f} s. {mc.diagnostics().verdict}", flush=True)


if __name__ == "__main__":
    main()
