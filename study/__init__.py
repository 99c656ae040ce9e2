"""The demonstration and the paper's comparison of MCMC and variational inference: `python -m study`.

The study uses public names of sparsefactor only, and the package never imports it.
"""
