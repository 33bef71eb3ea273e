"""From results to what is read: figures, the report, and later the documents; computes nothing new."""
