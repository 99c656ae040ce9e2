"""The row pass and the column step, once as the oracle and once per engine, under one contract."""
