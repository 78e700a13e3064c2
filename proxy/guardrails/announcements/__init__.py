"""How a model says that it is about to act, language by language, and where such words count."""
