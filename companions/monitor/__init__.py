"""What a running run does at present, in the terminal."""
