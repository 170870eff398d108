"""Judges of wire streams: state machines that know what a legal stream is, independent of the encoders."""
