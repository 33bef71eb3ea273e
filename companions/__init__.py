"""Companion studies beside the core: one folder each, which can be deleted. The core imports none of them."""
