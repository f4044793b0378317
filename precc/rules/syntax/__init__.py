"""What is wrong with the text of one policy, its names and its comments: pages only."""
