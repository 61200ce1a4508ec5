"""What happened in a run, shown: text coloured by its origin, the figures of the report, and a page about each round.

Nothing here takes part in decoding. A reader in a hurry may skip this folder.
"""
