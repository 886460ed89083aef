"""Tests mirror the package; `fakes` has the peers, the network and the scalpel that they share."""
