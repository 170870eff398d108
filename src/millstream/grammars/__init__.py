"""Constrained decoding: llguidance behind one door."""
