"""Parts of ``train``: prompts, answers, hidden states, draft vocabulary, the fit and its proof."""
