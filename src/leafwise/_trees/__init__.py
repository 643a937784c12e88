"""_trees."""
