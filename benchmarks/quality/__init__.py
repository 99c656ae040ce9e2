"""Quality of the fits of several methods on many tables: `python -m benchmarks.quality` (see __main__.py)."""
