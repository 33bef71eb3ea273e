"""What others take along: a figure with its data and source, or the folder that a course asks for about a study."""
