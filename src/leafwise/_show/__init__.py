"""What `leafwise.show` is made of: a tree is measured, its rows are chosen, then drawn."""
