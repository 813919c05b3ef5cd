"""Write prompts and answers of live traffic to a folder, only where the operator asks for it."""
