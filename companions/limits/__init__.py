"""What limits scaling: links, storage, a model of the training step beside what was measured, and shares of a core: chapter 03b."""
