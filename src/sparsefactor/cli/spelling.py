"""Python's settings, in messages, as the command line spells them."""

from __future__ import annotations

import ast
import re
import shlex

# Settings of read_table with a literal, as its messages write them: na=['k.A.'], header=False, sep=...
TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
NAMES = "sep|header|index|columns|drop|skip|na|keep|transpose|decimal|thousands|encoding|max_bytes"
RULE = re.compile(rf"^({NAMES})(?= must )")
SETTING = re.compile(
    rf"\b({NAMES})="
    rf"(True|False|\.\.\.|\d+|{TEXT}|\[{TEXT}(?:, {TEXT})*\])"
)
REPEATED = ("na", "keep")  # not as a list with commas

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
    (r"pass inclusion=Beta\(1, 1\)", "leave --inclusion out"),
    (r", or frames with names\b", ""),
    (r"\ba file that save\(\) wrote", "a file that fit, refine or sample saved"),
    (r"\bsample\(\.\.\., resume=path\)", "sparsefactor sample --resume FOLDER"),
    (r"^X must\b", "the table must"),
    (r"\b(check how|rescale) X\b", r"\1 the table"),
)


def as_options(text: str) -> str:
    """A message with its settings as options."""
    text = SETTING.sub(_option, text)
    text = RULE.sub(lambda found: "--" + found[1].replace("_", "-"), text)
    for python, flags in SETTINGS:
        text = re.sub(python, flags, text)
    return text


def _option(found: re.Match[str]) -> str:
    """na=['a', 'b'] as --na a --na b."""
    name, option = found[1], "--" + found[1].replace("_", "-")
    value = ast.literal_eval(found[2])
    if value is ... or value is True:
        return option
    if value is False:
        return f"--no-{name}"
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    if name not in REPEATED and not any("," in word for word in words):
        words = [",".join(words)]
    return " ".join(f"{option} {'tab' if word == chr(9) else shlex.quote(word)}" for word in words)


def spelt(verdict: object, draws: int) -> str:
    """A verdict on this number of draws with its remedies as options."""
    text = str(verdict)
    for python, flags in VERDICT:
        text = re.sub(python, flags.replace("{more}", str(2 * draws)), text)
    text = re.sub(r"--chains ([\d, ]+)", lambda found: "--chains " + found[1].replace(" ", ""), text)
    return as_options(text)
