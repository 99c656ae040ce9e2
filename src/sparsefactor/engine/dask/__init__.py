"""Rows on the workers of a Dask cluster.

Each worker holds a *shard*: neighbouring tiles of rows, the data of these and their states. Whoever asks the engine at
the client for a verb has all shards run it at once, each on its own rows, with the CPU engine's own text; the client
runs it too, on no rows at all. Wherever that text needs a sum over all rows it asks its exchange (kernels/exchange.py):
shards send the branches of the tree that they have, the client adds them, and sends the sum back where rows wait for
it. So there is one text of every verb, and the bits of a result do not depend on who has which rows.

    messages.py  what client and shards say to each other
    shard.py     a worker's rows, and the verbs run on them
    keeping.py   what a shard keeps, as bytes
    workers.py   which rows each worker gets
    places.py    shards on workers: messages, and what is done when a worker is lost
    gathering.py sums that neighbours add up before the client gets them
    cluster.py   verbs asked of all shards, and what they return
    engine.py    the engine at the client, its rows handles
    jax_passes.py  passes by JAX on the workers
    loading.py   the data: read by the workers, or sent to them
"""
