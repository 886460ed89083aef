"""The bench harness: a fake provider, an open-loop load generator, a raw-relay baseline and comparisons on one machine."""
