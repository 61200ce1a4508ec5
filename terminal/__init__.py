"""Options, the text as it comes, figures, tables, and how a program ends."""
