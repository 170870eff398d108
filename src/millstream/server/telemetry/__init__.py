"""What the server tells beside its answers: measured times, logs, traces."""
