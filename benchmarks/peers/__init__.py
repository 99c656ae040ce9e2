"""Accuracy and time beside other packages, measured in one run in an environment of its own."""
