"""Analysis frames as named values (`analyze.value.Value`), a topic a file; how points become names: `naming`."""
