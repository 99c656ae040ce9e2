"""The row pass and the column step as compiled functions over tiles of rows; `engine.cpu` runs them on threads."""
