"""How many drafts pay: acceptance and the time of steps in, K out."""
