"""What a function reads from outside its arguments, and what becomes of that.

Start with `reads.reads_of`: from the code that ran, which `observe` notes, it makes the list of the
`places` that this code reads. `reads.Current` is what is there now; `check` says what each value
consists of, and makes the code that asks at each call whether it still does.
"""
