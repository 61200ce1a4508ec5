"""Programs that found numbers of the pages. The next commit removes them."""
