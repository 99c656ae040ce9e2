"""Python's settings, in messages, as the command line spells them."""

from __future__ import annotations

import re

VERDICT = (
    (
        r"run longer \(the same path with larger n_draws continues the run\)",
        "run longer: the same command with --draws {more}, or --until converged",
    ),
    (r"run more chains \(n_chains=4\) and draws", "run more chains: --chains 4 --draws {more}"),
    (r"keep_chains\(\[([^\]]*)\]\)", r"sparsefactor summary, report or export with --chains \1"),
    (r"sample again", "sample again with another --seed"),
    # Python's alone:
    (r'weight the chains by how well they predict: combine\("stacking", X\)', "sample again with fewer --factors"),
)
SETTINGS = (
    (r'search="thorough", or refine, looks', "--search thorough, or sparsefactor refine, looks"),
    (r"with sample\b", "with `sparsefactor sample`"),
    (r"; refine continues", "; sparsefactor refine continues"),
    (r"\b(center|scale|race)=False\b", r"--no-\1"),
    (r"\b(center|scale|race|average|force)=True\b", r"--\1"),
    (r"\bn_(draws|chains|warmup|factors|trials|masks|modules)=", r"--\1 "),
    (r"\b(thin|seed|noise|share)=(?=['\w])", r"--\1 "),
    (r"\bmax_(seconds|iter)=", r"--max-\1 "),
    (r"\bn_(draws|chains|warmup|factors|trials|masks|modules)\b", r"--\1"),
    (r"\bmax_(seconds|iter)\b", r"--max-\1"),
    (r"\banother path\b", "another --path"),
    (r"\bcovariates=\.\.\.", "--covariates TABLE"),
    (r"\banother seed\b", "another --seed"),
    (r", lower --factors, or raise noise_rate", " or lower --factors"),  # as is the tolerance, Python's alone
    (r", or pass a larger tol\b", ""),
)


def as_options(text: str) -> str:
    """A message with its settings as options."""
    for python, flags in SETTINGS:
        text = re.sub(python, flags, text)
    return text


def spelt(verdict: object, draws: int) -> str:
    """A verdict on so many draws with its remedies as options."""
    text = str(verdict)
    for python, flags in VERDICT:
        text = re.sub(python, flags.replace("{more}", str(2 * draws)), text)
    text = re.sub(r"--chains ([\d, ]+)", lambda found: "--chains " + found[1].replace(" ", ""), text)
    return as_options(text)
