"""What is about a terminal: options, the text as it comes, figures, and how a program ends."""
