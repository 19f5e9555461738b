"""The watch in other people's training loops, and rows in other people's trackers."""
