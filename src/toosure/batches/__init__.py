"""Batches as loops have them: what is in them, what a model takes of it, and what it gives."""
