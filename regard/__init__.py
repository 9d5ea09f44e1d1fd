"""regard: sequence-to-sequence models you can train, compare and watch."""

__version__ = "0.1.0"
