"""Options combined: a full factorial, its effects and its fastest point: chapter 05b."""
