"""The Datastore itself, free of I/O of its own: it speaks to a store through adapters.contract and to nobody else."""
