"""What a function reads from outside its arguments, and how a change of that is detected.

Start with `reads.reads_of`: from the code that ran, as recorded by `observe`, it lists the `places`
that this code reads. `reads.Current` holds their current values, each with its account
(`leafwise._statics.account`); `check` generates the code that compares them at each call.
"""
