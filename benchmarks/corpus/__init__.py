"""Real matrices, and simulations from other models, on which defaults are judged: see sets.py and __main__.py."""
