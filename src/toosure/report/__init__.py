"""Pages: one self-contained HTML file each, opened from disk, offline, on any screen or paper."""
