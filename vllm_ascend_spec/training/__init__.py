"""Parts that ``train`` will be made of: prompts, answers, draft vocabulary, hidden states."""
