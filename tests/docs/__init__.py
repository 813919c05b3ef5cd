"""Every code block of the documents is run as a person would run it, or the table says why not."""
