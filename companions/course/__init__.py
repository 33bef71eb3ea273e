"""The folder that a course about HPC asks its participants to hand in about a study."""
