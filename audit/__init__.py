"""Other people's samplers, run once. The next commit takes this folder out again."""
