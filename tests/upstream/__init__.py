"""What we build on: is it still there, and do its own tests pass with our parts in place?"""
