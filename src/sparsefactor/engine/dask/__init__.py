"""Rows in blocks on the workers of a Dask cluster.

    blocks.py  what a worker does: pure functions of a block of rows
    futures.py futures of blocks, and of what functions make of each; sums over them
    engine.py  the engine of the client
    data.py    data that the workers read

A block of rows, and its part of a state, are futures. A verb is a task for each block; it runs the CPU engine's own
text and returns the block's new state with its branches of the tree of sums (data/tiles.py). These are added up, by
tasks where there are many blocks, and the client runs the same text on no rows with the totals. So each verb has one
text, and the result does not depend on the number of blocks. Dask makes what a lost worker had again.
"""
