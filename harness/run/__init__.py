"""The life of a run: phases, workers, liveness, draining, the manifest; and the rounds of a
campaign."""
