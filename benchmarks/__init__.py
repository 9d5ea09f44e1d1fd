"""Speed and memory of `regard` and of its peers, measured side by side; see docs/benchmarks.md."""
