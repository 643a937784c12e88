"""What a function reads from outside its arguments, and how a change of that is detected.

Start with `reads.reads_of`: from the code that ran, as recorded by `observe`, it lists the `places`
that this code reads. `reads.Current` holds their current values; `check` describes the parts of
each value, and generates the code that checks at each call whether they have changed.
"""
