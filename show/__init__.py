"""What happened in a run, shown: coloured text, the figures of the report, a page or a picture of the rounds.

Nothing here changes what is decoded. A reader in a hurry may skip this folder.
"""
