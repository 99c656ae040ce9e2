"""The row pass and the column step as compiled functions over tiles of rows; `engine.local` runs them on threads."""
