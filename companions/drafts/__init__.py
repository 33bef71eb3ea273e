"""First versions of the files that a person then edits: of a cluster, of a study, of a document."""
