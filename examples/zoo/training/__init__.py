"""Train the zoo's tiny checkpoints: a corpus, three models, one loop."""
