"""One module for each target, its name the target's; see `bench.target`."""
