"""`python -m sparsefactor`: the command line."""

from .cli import main

main()
